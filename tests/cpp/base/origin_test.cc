#include "base/origin.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/end_report.h"
#include "base/fd.h"
#include "base/status.h"

namespace hvd {
namespace {

Origin sample() {
  return {.kind = OriginKind::exception,
          .rank = 1,
          .host = "hostb",
          .pid = 4711,
          .type = "ValueError",
          .text = "bad batch"};
}

Origin over_the_wire(const Origin& origin) {
  Bytes bytes;
  Encoder out(bytes);
  encode(out, origin);
  Decoder in(bytes);
  Origin back = decode_origin(in);
  EXPECT_TRUE(in.ok() && in.at_end());
  return back;
}

TEST(Origin, TravelsWhole) {
  EXPECT_EQ(over_the_wire(sample()), sample());
  EXPECT_EQ(over_the_wire({}), Origin{});
  EXPECT_EQ(Status(Code::unknown, "why", sample()).origin(), sample());
  EXPECT_EQ(Status().origin(), Origin{});
}

TEST(Origin, LongTextsAreCutBetweenCharacters) {
  Origin origin = sample();
  origin.text = std::string(kLongestOriginText - 1, 'x') + "\xc3\xa9";  // its last character has two bytes
  EXPECT_EQ(over_the_wire(origin).text, std::string(kLongestOriginText - 1, 'x'));
}

TEST(Origin, BytesOfAnotherKindAreRefused) {
  for (Bytes bytes : {Bytes{std::byte{99}}, Bytes{std::byte{1}, std::byte{2}}, Bytes{}}) {
    Decoder in(bytes);
    EXPECT_EQ(decode_origin(in), Origin{});
    EXPECT_FALSE(in.ok());
  }
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK), 0);
    read = UniqueFd(ends[0]), write = UniqueFd(ends[1]);
  }
  std::string bytes() const {
    char room[8192];
    ssize_t count = ::read(read.get(), room, sizeof room);
    return {room, static_cast<size_t>(std::max<ssize_t>(count, 0))};
  }
  UniqueFd read, write;
};

TEST(EndReport, GoesThroughThePipeThatTheEnvironmentNames) {
  Pipe pipe;
  int found = open_report_pipe(name_report_pipe(pipe.write.get()));
  ASSERT_EQ(found, pipe.write.get());
  EXPECT_EQ(::fcntl(found, F_GETFD), FD_CLOEXEC);
  EndReport report{.rank = 0, .origin = sample()};
  EXPECT_TRUE(report.is_consequence());
  write_report(found, report);
  std::string bytes = pipe.bytes();
  std::string first = bytes.substr(0, 7), second = bytes.substr(7);
  EXPECT_FALSE(take_report(first));
  first += second;
  EXPECT_EQ(take_report(first), report);
  EXPECT_TRUE(first.empty());
}

TEST(EndReport, NothingIsWrittenToAnotherFileOfTheSameNumber) {
  Pipe first, second;
  std::string name = name_report_pipe(first.write.get());
  int number = first.write.get();
  ASSERT_EQ(::dup2(second.write.get(), number), number);
  EXPECT_EQ(open_report_pipe(name), -1);
  EXPECT_EQ(open_report_pipe("no name"), -1);
  EXPECT_EQ(open_report_pipe(""), -1);
}

TEST(EndReport, ALengthThatNoWorkerWritesIsDropped) {
  std::string bytes(8, '\xff');
  EXPECT_FALSE(take_report(bytes));
  EXPECT_TRUE(bytes.empty());
}

}  // namespace
}  // namespace hvd
