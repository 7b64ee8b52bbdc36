// How the bytes of a pair are spread over its connections, and how many of them are used.
#include "transport/striped_stream.h"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <random>
#include <span>

#include "base/clock.h"
#include "base/wire.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

// ---- striped streams ----

Bytes random_bytes(size_t size) {
  std::mt19937 random(1);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random());
  return bytes;
}

// Moves everything from one stream to the other over queues, in random portions; returns the stripe of each byte.
struct Transfer {
  static constexpr size_t kStripes = 4;
  StripeShape shape{.segment = 7, .stretch = 42};
  WidthChoice choice{false};
  StripedStream<ByteView> out{kStripes, shape, &choice};
  StripedStream<std::span<std::byte>> in{kStripes, shape, nullptr};
  std::deque<std::byte> wires[kStripes];
  std::vector<size_t> widths;  // of the finished stretches
  std::mt19937 random{3};

  Transfer() { choice.set_most(kStripes); }
  size_t portion(size_t most) { return 1 + random() % most; }

  void send_some(size_t stripe, const Bytes& memory, std::vector<int>& stripe_of) {
    ByteView bytes = out.next(stripe);
    if (bytes.empty()) return;
    bytes = bytes.first(portion(bytes.size()));
    wires[stripe].insert(wires[stripe].end(), bytes.begin(), bytes.end());
    bool is_data = bytes.data() >= memory.data() && bytes.data() < memory.data() + memory.size();
    for (size_t i = 0; is_data && i < bytes.size(); i++)
      stripe_of[size_t(bytes.data() - memory.data()) + i] = int(stripe);
    out.advance(stripe, bytes.size());
    while (size_t width = out.take_finished()) widths.push_back(width);
    ASSERT_EQ(out.done(), uint64_t(std::find(stripe_of.begin(), stripe_of.end(), -1) - stripe_of.begin()));
  }
  void receive_some(size_t stripe) {
    std::span<std::byte> room = in.next(stripe);
    if (room.empty() || wires[stripe].empty()) return;
    size_t count = portion(std::min(room.size(), wires[stripe].size()));
    std::copy_n(wires[stripe].begin(), count, room.begin());
    wires[stripe].erase(wires[stripe].begin(), wires[stripe].begin() + ptrdiff_t(count));
    in.advance(stripe, count);
    ASSERT_FALSE(in.is_broken());
    while (in.take_finished() > 0) continue;
  }
};

TEST(StripedStreamTest, EveryByteArrivesWhateverTheWidths) {
  constexpr size_t kBytes = 42 * 30 + 5;  // all widths, and the one that is kept, with no end of a stretch
  Transfer transfer;
  Bytes sent = random_bytes(kBytes), received(kBytes);
  transfer.out.push(ByteView(sent).first(10));
  transfer.out.push(ByteView(sent).subspan(10));
  transfer.in.push(std::span(received).first(500));
  transfer.in.push(std::span(received).subspan(500));
  std::vector<int> stripe_of(kBytes, -1);
  while (!transfer.in.is_empty()) {
    transfer.send_some(transfer.random() % 4, sent, stripe_of);
    transfer.receive_some(transfer.random() % 4);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(received, sent);
  ASSERT_EQ(transfer.widths.size(), kBytes / 42);
  EXPECT_EQ(std::vector<size_t>(transfer.widths.begin(), transfer.widths.begin() + 9),
            (std::vector<size_t>{1, 1, 1, 2, 2, 2, 4, 4, 4}));
  for (size_t i = 0; i < kBytes / 42 * 42; i++) {
    EXPECT_EQ(size_t(stripe_of[i]), i % 42 / 7 % transfer.widths[i / 42]) << i;
  }
}

TEST(StripedStreamTest, AWidthThatThereIsNotIsNoticed) {
  for (std::byte told : {std::byte{0}, std::byte{3}}) {
    StripedStream<std::span<std::byte>> stream(2, {}, nullptr);
    std::byte room[4];
    stream.push(room);
    EXPECT_TRUE(stream.next(1).empty());
    ASSERT_EQ(stream.next(0).size(), stream.kHeader);
    stream.next(0)[0] = told;
    stream.advance(0, 1);
    EXPECT_EQ(stream.next(0).size(), stream.kHeader - 1);
    EXPECT_FALSE(stream.is_broken());
    stream.advance(0, stream.kHeader - 1);
    EXPECT_TRUE(stream.is_broken());
  }
}

TEST(StripedStreamTest, WhatFollowsInMemoryIsMovedByOneCall) {
  WidthChoice choice(true);
  choice.set_most(1);
  StripedStream<ByteView> stream(1, {.segment = 8, .stretch = 64}, &choice);
  Bytes memory(100);
  ByteView all(memory);
  stream.push(all.first(10));
  stream.push(all.subspan(10, 20));
  stream.push(all.subspan(40, 10));
  stream.advance(0, stream.next(0).size());  // the header
  EXPECT_EQ(stream.next(0).data(), memory.data());
  EXPECT_EQ(stream.next(0).size(), 30u);
  stream.advance(0, 15);
  EXPECT_EQ(stream.done(), 15u);
  EXPECT_EQ(stream.next(0).size(), 15u);
  stream.advance(0, 15);
  EXPECT_EQ(stream.next(0).data(), memory.data() + 40);
  EXPECT_EQ(stream.next(0).size(), 10u);
  stream.push(all.subspan(50, 50));  // continues a piece in progress, to the end of the stretch
  EXPECT_EQ(stream.next(0).size(), 34u);
  stream.advance(0, 34);
  stream.advance(0, stream.next(0).size());
  EXPECT_EQ(stream.next(0).data(), memory.data() + 74);
  EXPECT_EQ(stream.next(0).size(), 26u);
  stream.advance(0, 26);
  EXPECT_TRUE(stream.is_empty());
  EXPECT_EQ(stream.done(), 90u);
}

// ---- widths ----

// Sends stretches that take as long as `speed` says for their width, and returns the widths.
std::vector<size_t> widths_of(WidthChoice& choice, int stretches, const std::function<double(size_t)>& seconds_for) {
  std::vector<size_t> widths;
  TimePoint now(1000s);
  choice.resume(now);
  for (int i = 0; i < stretches; i++) {
    widths.push_back(choice.choose());
    now += seconds(seconds_for(widths.back()));
    choice.record(widths.back(), now);
  }
  return widths;
}
constexpr int kTries = 3 * WidthChoice::kTrial;  // of 1, 2 and 4

TEST(WidthChoiceTest, TheFastestIsKept) {
  WidthChoice choice(false);
  choice.set_most(4);
  auto widths = widths_of(choice, kTries + 20, [](size_t width) { return width == 2 ? 0.5 : 1.0; });
  EXPECT_THAT(std::vector(widths.begin() + kTries, widths.end()), testing::Each(2u));
}

TEST(WidthChoiceTest, MoreConnectionsThatGainLittleAreNotUsed) {
  WidthChoice choice(false);
  choice.set_most(4);
  auto widths = widths_of(choice, kTries + 20, [](size_t width) { return 1 - 0.02 * double(width); });
  EXPECT_THAT(std::vector(widths.begin() + kTries, widths.end()), testing::Each(1u));
}

TEST(WidthChoiceTest, AllAreTriedAgainBecauseTheNetworkChanges) {
  WidthChoice choice(false);
  choice.set_most(4);
  widths_of(choice, kTries + WidthChoice::kKept + 1, [](size_t) { return 1.0; });
  auto widths = widths_of(choice, kTries + 20, [](size_t width) { return 1.0 / double(width); });
  EXPECT_THAT(std::vector(widths.begin() + kTries, widths.end()), testing::Each(4u));
}

TEST(WidthChoiceTest, TimeWithNothingToSendDoesNotCount) {
  WidthChoice choice(false);
  choice.set_most(2);
  TimePoint now(1000s);
  for (int i = 0; i < 2 * WidthChoice::kTrial; i++) {
    size_t width = choice.choose();
    choice.resume(now);
    now += 1s;
    choice.pause(now);
    if (width == 2) now += 60s;  // the user computes
    choice.resume(now);
    now += width == 2 ? 500ms : 1s;
    choice.record(width, now);
    choice.pause(now);
  }
  EXPECT_EQ(choice.choose(), 2u);
}

TEST(WidthChoiceTest, AGivenNumberIsNotQuestioned) {
  WidthChoice choice(true);
  choice.set_most(3);
  EXPECT_FALSE(choice.is_open());
  EXPECT_THAT(widths_of(choice, 20, [](size_t) { return 1.0; }), testing::Each(3u));
}

}  // namespace
}  // namespace hvd
