#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace hvd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

class Log : public testing::Test {
 protected:
  void SetUp() override {
    CaptureStdout();
    CaptureStderr();
  }
  void TearDown() override { set_log_settings({}); }
};

TEST_F(Log, LinesUpToInfoGoToStdoutAndTheOthersToStderr) {
  set_log_settings({.level = LogLevel::trace, .hide_time = true});
  log(LogLevel::trace, "one");
  log_debug("two");
  log_info("three {}", 3);
  log_warning("four {} {}", "x", 1.5);
  log_error("five");
  log(LogLevel::fatal, "six");
  EXPECT_THAT(GetCapturedStdout(), MatchesRegex("\\[T log_test.cc:[0-9]+\\] one\n"
                                                "\\[D log_test.cc:[0-9]+\\] two\n"
                                                "\\[I log_test.cc:[0-9]+\\] three 3\n"));
  EXPECT_THAT(GetCapturedStderr(), MatchesRegex("\\[W log_test.cc:[0-9]+\\] four x 1.5\n"
                                                "\\[E log_test.cc:[0-9]+\\] five\n"
                                                "\\[F log_test.cc:[0-9]+\\] six\n"));
}

TEST_F(Log, LinesBelowTheLevelAreNotWritten) {
  set_log_settings({.level = LogLevel::error, .hide_time = true});
  EXPECT_FALSE(log_enabled(LogLevel::warning));
  EXPECT_TRUE(log_enabled(LogLevel::error));
  log_info("no");
  log_warning("no");
  EXPECT_EQ(GetCapturedStdout(), "");
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST_F(Log, LinesTellTimeLevelAndPlace) {
  int line = __LINE__ + 1;
  log_warning("slow");
  GetCapturedStdout();
  EXPECT_THAT(GetCapturedStderr(),
              MatchesRegex("\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}: W log_test.cc:" +
                           std::to_string(line) + "\\] slow\n"));
}

TEST_F(Log, LinesOfManyThreadsStayWhole) {
  set_log_settings({.level = LogLevel::warning, .hide_time = true});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; i++) {
      threads.emplace_back([] {
        for (int n = 0; n < 100; n++) log_warning("{}", std::string(200, 'x'));
      });
    }
  }
  GetCapturedStdout();
  std::istringstream lines(GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); count++) {
    ASSERT_EQ(line.substr(line.find(']') + 1), ' ' + std::string(200, 'x'));
  }
  EXPECT_EQ(count, 400);
}

TEST_F(Log, AsJsonALineIsOneObject) {
  set_log_settings({.level = LogLevel::warning, .hide_time = true, .is_json = true});
  set_log_rank(3);
  log_warning("a \"quoted\"\n\\ line\x01");
  set_log_rank(-1);
  log_error("e");
  GetCapturedStdout();
  std::string text = GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr(R"({"level":"warning","file":"log_test.cc","line":)"));
  EXPECT_THAT(text, HasSubstr(",\"rank\":3,\"message\":"
                              R"("a \"quoted\"\n\\ line\u0001"})"
                              "\n{\"level\":\"error\""));
  EXPECT_THAT(text, MatchesRegex(".*\"pid\":[0-9]+,\"message\":\"e\"\\}\n"));
}

}  // namespace
}  // namespace hvd
