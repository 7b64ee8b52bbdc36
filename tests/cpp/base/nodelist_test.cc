#include "base/nodelist.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/joined.h"

namespace hvd {
namespace {

using testing::ElementsAre;

std::vector<std::string> nodes_of(std::string_view text) {
  auto nodes = expand_nodelist(text);
  EXPECT_TRUE(nodes.ok()) << nodes.status().message();
  return nodes.ok() ? *nodes : std::vector<std::string>();
}

TEST(Nodelist, NamesAndRanges) {
  EXPECT_THAT(nodes_of("login"), ElementsAre("login"));
  EXPECT_THAT(nodes_of("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(nodes_of("n[1-3,7]"), ElementsAre("n1", "n2", "n3", "n7"));
  EXPECT_THAT(nodes_of("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(nodes_of("n[08-10]-ib,x"), ElementsAre("n08-ib", "n09-ib", "n10-ib", "x"));
}

TEST(Nodelist, SeveralBracketsAreAllCombinations) {
  EXPECT_THAT(nodes_of("r[1-2]n[0-1]"), ElementsAre("r1n0", "r1n1", "r2n0", "r2n1"));
  EXPECT_THAT(nodes_of("[1-2]x[07,9]"), ElementsAre("1x07", "1x9", "2x07", "2x9"));
}

TEST(Nodelist, WhatCannotBeReadIsAnError) {
  for (const char* text : {"", ",", "a,", "a,,b", "a[", "a[1", "a]", "a[]", "a[1-]", "a[-1]", "a[2-1]", "a[1-2", "a[x]",
                           "a[1]]", "a[[1]]", "a[0-9999999]", "a[1-999][1-999][1-999]", "a[12345678901]"})
    EXPECT_FALSE(expand_nodelist(text).ok()) << text;
}

TEST(Counts, AreRepeated) {
  auto counts = expand_counts("2(x3),1,0,12(x1)");
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_THAT(*counts, ElementsAre(2, 2, 2, 1, 0, 12));
}

TEST(Counts, WhatCannotBeReadIsAnError) {
  for (const char* text : {"", ",", "1,", "x", "-1", "2(x)", "2(x3", "2x3", "(x3)", "2(x-1)", "2(x9999999)", "2(x3)4"})
    EXPECT_FALSE(expand_counts(text).ok()) << text;
}

// Writes a list of nodes in some short form, chosen at random.
struct Writer {
  std::mt19937 random;

  int roll(int low, int high) { return std::uniform_int_distribution(low, high)(random); }

  std::string bracket(std::vector<std::string>& parts) {
    std::vector<std::string> ranges;
    for (int low = roll(0, 9), count = roll(1, 4); count > 0; --count) {
      int width = roll(1, 4), high = low + roll(0, 12);
      ranges.push_back(fmt::format("{:0{}}", low, width));
      if (high > low || roll(0, 1) == 1) ranges.back() += fmt::format("-{:0{}}", high, roll(0, 1) * width);
      for (int number = low; number <= high; ++number) parts.push_back(fmt::format("{:0{}}", number, width));
      if (ranges.back().find('-') == std::string::npos) parts.resize(parts.size() - static_cast<size_t>(high - low));
      low = high + roll(1, 100);
    }
    return "[" + joined(ranges, ",") + "]";
  }

  std::string item(std::vector<std::string>& nodes) {
    std::string text(1, static_cast<char>('a' + roll(0, 25)));
    std::vector<std::string> names{text};
    for (int brackets = roll(0, 2); brackets > 0; --brackets) {
      std::vector<std::string> parts, longer;
      std::string suffix = roll(0, 1) == 1 ? "-x" : "";
      text += bracket(parts) + suffix;
      for (const std::string& name : names)
        for (const std::string& part : parts) longer.push_back(name + part + suffix);
      names = longer;
    }
    nodes.insert(nodes.end(), names.begin(), names.end());
    return text;
  }
};

TEST(Nodelist, WhateverIsWrittenIsReadBack) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Writer writer{std::mt19937(seed)};
    std::vector<std::string> nodes, items;
    for (int count = writer.roll(1, 4); count > 0; --count) items.push_back(writer.item(nodes));
    EXPECT_EQ(nodes_of(joined(items, ",")), nodes) << "seed " << seed << ": " << joined(items, ",");
  }
}

TEST(Nodelist, RandomTextNeverGetsOutOfHand) {
  std::mt19937 random(1);
  constexpr std::string_view kLetters = "a1[]-,(x)0 9";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t length = random() % 24; length > 0; --length) text += kLetters[random() % kLetters.size()];
    auto nodes = expand_nodelist(text);
    auto counts = expand_counts(text);
    EXPECT_LE(nodes.ok() ? nodes->size() : 0, size_t{1} << 20) << text;
    EXPECT_LE(counts.ok() ? counts->size() : 0, size_t{1} << 20) << text;
  }
}

}  // namespace
}  // namespace hvd
