#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/doctor/findings.h"
#include "launcher/doctor_exams.h"

namespace hvd::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DoctorReport, IsATableWithAdviceAMatrixAndAVerdict) {
  auto hosts = healthy_hosts(3);
  hosts[1].facts->resources.shm = 64 << 20;
  hosts.push_back(lost_host());
  std::string text = report_text(hosts, judge(hosts));
  EXPECT_THAT(text, HasSubstr(" on 4 hosts:\n"));
  EXPECT_THAT(text, HasSubstr("\n  fail  contact    gone     Connection refused\n"
                              "                            -> try by hand: ssh gone true\n"));
  EXPECT_THAT(text, HasSubstr("\n  warn  shm        2        /dev/shm has only 64 MiB\n"));
  EXPECT_THAT(text, HasSubstr("\n  ok    versions   1, 2, 3  Python 3.11.2, horovod 1.0.0\n"));
  EXPECT_THAT(text, HasSubstr("\n        1     2     3\n"
                              "  1     -     1/2   1/2\n"
                              "  2     1/2   -     1/2\n"
                              "  3     1/2   1/2   -\n"));
  EXPECT_THAT(text, HasSubstr("\n1 problem and 1 warning: jobs on these hosts will not work.\n"));
}

TEST(DoctorReport, SaysWhenAllIsWell) {
  auto hosts = healthy_hosts(2);
  std::string text = report_text(hosts, judge(hosts));
  EXPECT_THAT(text, HasSubstr("ok    contact    all hosts  2 hosts answer\n"));
  EXPECT_THAT(text, HasSubstr("\nAll is well.\n"));
  hosts[0].facts->resources.memory = 1;
  EXPECT_THAT(report_text(hosts, judge(hosts)), HasSubstr("\n1 warning; jobs on these hosts will work.\n"));
}

TEST(DoctorReport, ManyHostsDoNotFlood) {
  auto hosts = healthy_hosts(100);
  for (size_t i = 0; i < 50; i++) hosts[i].facts->resources.memory = 1;
  std::string text = report_text(hosts, judge(hosts));
  EXPECT_THAT(text, HasSubstr("1, 2 and 48 more"));
  EXPECT_THAT(text, Not(HasSubstr("Addresses that answer")));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20);
}

TEST(DoctorReport, JsonHasEverything) {
  auto hosts = healthy_hosts(2);
  hosts[1].facts.reset();
  hosts[1].probe_error = "not utf-8: \xff";
  auto findings = judge(hosts);
  Json report = Json::parse(report_json(hosts, findings));
  EXPECT_EQ(report["ok"], false);
  ASSERT_EQ(report["findings"].size(), findings.size());
  for (size_t i = 0; i < findings.size(); i++) {
    EXPECT_EQ(report["findings"][i]["severity"], name_of(findings[i].severity));
    EXPECT_EQ(report["findings"][i]["check"], findings[i].check);
    EXPECT_EQ(report["findings"][i]["hosts"], findings[i].hosts);
  }
  EXPECT_EQ(report["hosts"][0]["facts"], to_json(*hosts[0].facts));
  EXPECT_TRUE(report["hosts"][1]["facts"].is_null());
}

}  // namespace
}  // namespace hvd::launcher
