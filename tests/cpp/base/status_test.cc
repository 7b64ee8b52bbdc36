#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

namespace hvd {
namespace {

TEST(Status, SuccessHasNoMessage) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.message(), "");
}

TEST(Status, CopiesAreIndependent) {
  Status original(Code::peer_lost, "rank 3 lost rank 1");
  Status copy = original;
  original = Status();
  EXPECT_TRUE(original.ok());
  EXPECT_EQ(copy.code(), Code::peer_lost);
  EXPECT_EQ(copy.message(), "rank 3 lost rank 1");
}

TEST(Status, AssigningToItselfKeepsIt) {
  Status status(Code::aborted, "never");
  const Status& same = status;
  status = same;
  EXPECT_EQ(status.code(), Code::aborted);
  EXPECT_EQ(status.message(), "never");
}

TEST(Status, EveryCodeHasAName) {
  for (int32_t code = 0; code <= static_cast<int32_t>(kLastCode); code++) {
    EXPECT_NE(name_of(static_cast<Code>(code)), "?");
  }
}

TEST(Status, ReceivedNumbersAreCodesOrUnknown) {
  for (uint64_t number = 1; number <= static_cast<uint64_t>(kLastCode); number++)
    EXPECT_EQ(error_code_of(number), static_cast<Code>(number));
  EXPECT_EQ(error_code_of(0), Code::unknown);
  EXPECT_EQ(error_code_of(static_cast<uint64_t>(kLastCode) + 1), Code::unknown);
  EXPECT_EQ(error_code_of(UINT64_MAX), Code::unknown);
}

TEST(Status, SystemErrorSaysWhatFailedOnWhatAndWhy) {
  EXPECT_EQ(system_error("cannot open file", "/x/y", ENOENT).message(),
            "cannot open file /x/y: No such file or directory");
  EXPECT_EQ(system_error("cannot fork", "", EAGAIN).message(), "cannot fork: Resource temporarily unavailable");
  errno = EACCES;
  EXPECT_EQ(system_error("cannot open", "z").message(), "cannot open z: Permission denied");
}

TEST(Result, HoldsAValueThatCanBeMovedOut) {
  Result<std::unique_ptr<std::string>> result(std::make_unique<std::string>("value"));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  std::unique_ptr<std::string> taken = std::move(*result);
  EXPECT_EQ(*taken, "value");
}

TEST(Result, HoldsAFailure) {
  Result<int> result(Status(Code::invalid_argument, "no"));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace hvd
