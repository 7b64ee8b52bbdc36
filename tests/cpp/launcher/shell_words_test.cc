#include "launcher/processes/shell_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> words(std::string_view text) {
  auto split = split_shell_words(text);
  EXPECT_TRUE(split.ok()) << split.status().message();
  return split.ok() ? *split : std::vector<std::string>();
}

TEST(ShellWords, AreSeparatedByBlanks) {
  EXPECT_THAT(words("  --mca btl\ttcp \n -x A=1 "), ElementsAre("--mca", "btl", "tcp", "-x", "A=1"));
  EXPECT_THAT(words(" \n"), IsEmpty());
}

TEST(ShellWords, HaveQuotesAndBackslashesAsInSh) {
  EXPECT_THAT(words(R"('a b'"c d"e\ f)"), ElementsAre("a bc de f"));
  EXPECT_THAT(words(R"("a\"b\\c\d" '\n' '')"), ElementsAre(R"(a"b\c\d)", R"(\n)", ""));
  EXPECT_THAT(words(R"($HOME `id`)"), ElementsAre("$HOME", "`id`"));  // nothing is expanded
}

TEST(ShellWords, AQuoteThatIsNotClosedIsAMistake) {
  for (const char* text : {"a 'b", "a \"b", "'"}) {
    auto split = split_shell_words(text);
    ASSERT_FALSE(split.ok());
    EXPECT_THAT(std::string(split.status().message()), HasSubstr("a quote is not closed in: "));
  }
}

TEST(ShellWords, ALineReadsAsItsWords) {
  std::vector<std::string> all{"mpirun", "-x", "A=b c", "it's", "", "^openib", "a;b", "$x"};
  EXPECT_EQ(shell_line(all), R"(mpirun -x 'A=b c' 'it'\''s' '' '^openib' 'a;b' '$x')");
  EXPECT_EQ(words(shell_line(all)), all);
}

}  // namespace
}  // namespace hvd::launcher
