#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "launcher/doctor/findings.h"
#include "launcher/doctor_exams.h"

namespace hvd::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

auto is_finding(Severity severity, const std::string& check, const std::vector<std::string>& hosts,
                const std::string& text, const std::string& advice) {
  return AllOf(Field(&Finding::severity, severity), Field(&Finding::check, check), Field(&Finding::hosts, hosts),
               Field(&Finding::text, HasSubstr(text)), Field(&Finding::advice, HasSubstr(advice)));
}

std::vector<Finding> problems(const std::vector<HostExam>& hosts) {
  std::vector<Finding> found = judge(hosts);
  std::erase_if(found, [](const Finding& finding) { return finding.severity == Severity::ok; });
  return found;
}

TEST(DoctorFindings, HealthyHostsHaveOneOkForEveryCheck) {
  std::vector<Finding> findings = judge(healthy_hosts(3));
  std::vector<std::string> checks;
  for (const Finding& finding : findings) {
    checks.push_back(finding.check);
    EXPECT_EQ(finding.severity, Severity::ok) << finding.check << ": " << finding.text;
    EXPECT_EQ(finding.hosts.size(), 3U);
    EXPECT_THAT(finding.text, Not(IsEmpty()));
    EXPECT_EQ(finding.advice, "");
  }
  EXPECT_THAT(checks, ElementsAre("contact", "launcher", "versions", "addresses", "clock", "limits", "shm", "cpus",
                                  "memory", "kernel", "allreduce"));
  EXPECT_FALSE(has_failed(findings));
}

TEST(DoctorFindings, OneHostHasNobodyToReach) {
  std::vector<std::string> checks;
  for (const Finding& finding : judge(healthy_hosts(1))) {
    EXPECT_EQ(finding.severity, Severity::ok) << finding.text;
    checks.push_back(finding.check);
  }
  EXPECT_THAT(checks, ElementsAre("contact", "versions", "limits", "shm", "cpus", "memory", "kernel", "allreduce"));
}

TEST(DoctorFindings, AHostThatCannotBeContactedIsARow) {
  auto hosts = healthy_hosts(2);
  hosts.push_back(lost_host());
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::fail, "contact", {"gone"}, "Connection refused",
                                                      "try by hand: ssh gone true")));
  EXPECT_TRUE(has_failed(judge(hosts)));
}

TEST(DoctorFindings, NoHostAtAllIsOnlyAboutContact) {
  EXPECT_THAT(judge({lost_host()}),
              ElementsAre(is_finding(Severity::fail, "contact", {"gone"}, "Connection refused", "ssh gone true")));
}

TEST(DoctorFindings, AProbeThatSaidNothingIsARow) {
  auto hosts = healthy_hosts(2);
  hosts[1].facts.reset();
  hosts[1].probe_error = "it ended with exit code 3";
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::fail, "probe", {"2"}, "it ended with exit code 3", "--start-timeout")));
}

TEST(DoctorFindings, AProbeThatGotStuckKeepsWhatItFound) {
  auto hosts = healthy_hosts(2);
  hosts[1].probe_error = "it had not ended";
  hosts[1].facts->allreduce.reset();
  hosts[1].facts->resources.shm = 1 << 20;
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::fail, "probe", {"2"}, "it had not ended", ""),
                                           is_finding(Severity::warn, "shm", {"2"}, "only 1 MiB", "--shm-size")));
}

TEST(DoctorFindings, AHostThatCannotReachTheLauncher) {
  auto hosts = healthy_hosts(2);
  hosts[1].facts->launcher_error = "cannot connect to the job's store";
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::fail, "launcher", {"2"}, "the job's store", "--network-interfaces")));
}

// ---- versions

TEST(DoctorFindings, VersionsOfHorovodMustBeEqual) {
  auto hosts = healthy_hosts(3);
  hosts[2].facts->installation.package = hosts[2].facts->installation.horovodrun = "0.9.0";
  hosts[2].facts->installation.library_version = "0.9.0";
  EXPECT_THAT(
      problems(hosts),
      ElementsAre(is_finding(Severity::fail, "versions", {"3"}, "horovodrun differs: 0.9.0 on 3; 1.0.0 on 1, 2", ""),
                  is_finding(Severity::fail, "versions", {"3"}, "the package horovod differs", "same version"),
                  is_finding(Severity::fail, "versions", {"3"}, "libhorovod.so differs", "")));
}

TEST(DoctorFindings, AnotherPythonFailsAndAnotherPatchOfItWarns) {
  auto hosts = healthy_hosts(2);
  hosts[0].facts->installation.python_version = "3.11.9";
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "versions", {"1"}, "", "")));
  hosts[0].facts->installation.python_version = "3.12.0";
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::fail, "versions", {"1"},
                                                      "Python differs: 3.11.2 on 2; 3.12.0 on 1", "environment")));
}

TEST(DoctorFindings, WhatIsMissingOfAnInstallation) {
  auto hosts = healthy_hosts(4);
  hosts[0].facts->installation.python = hosts[0].facts->installation.python_version = "";
  hosts[0].facts->installation.package = "";
  hosts[1].facts->installation.package = "";
  hosts[2].facts->installation.library_version = "";
  hosts[2].facts->installation.library_error = "no such file";
  hosts[3].facts->installation.python_version = hosts[3].facts->installation.package = "";
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "versions", {"1"}, "no Python", "PATH"),
                          is_finding(Severity::warn, "versions", {"2"}, "does not find the package horovod",
                                     "/usr/bin/python3 -m pip install horovod==1.0.0"),
                          is_finding(Severity::fail, "versions", {"3"},
                                     "/lib/libhorovod.so cannot be used: no such file", "install"),
                          is_finding(Severity::warn, "versions", {"4"}, "did not print its version", "--version")));
}

TEST(DoctorFindings, ProgramAndPackageShouldBeOfOneEnvironment) {
  auto hosts = healthy_hosts(1);
  hosts[0].facts->installation.package = "0.28.1";
  EXPECT_THAT(
      problems(hosts),
      ElementsAre(is_finding(Severity::warn, "versions", {"1"},
                             "horovodrun is 1.0.0, but the package of /usr/bin/python3 is 0.28.1", "environment")));
}

TEST(DoctorFindings, AMajorityIsPresumedRightAndLongListsAreCut) {
  auto hosts = healthy_hosts(9);
  hosts[0].facts->installation.python_version = "3.9.1";
  auto found = problems(hosts);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "Python differs: 3.11.2 on 2, 3, 4, 5, 4 more; 3.9.1 on 1");
  EXPECT_THAT(found[0].hosts, ElementsAre("1"));
}

// ---- addresses

Attempt& attempt_of(HostExam& host, size_t index) { return host.facts->attempts[index]; }

TEST(DoctorFindings, APairWithoutAnyWayFails) {
  auto hosts = healthy_hosts(2);
  attempt_of(hosts[0], 0).time.reset();
  attempt_of(hosts[0], 0).error = "no answer in 3.0 s";
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::fail, "addresses", {"1", "2"},
                                     "1 cannot reach 2: 10.0.0.2 (eth0): no answer in 3.0 s", "from 1 to 2")));
}

TEST(DoctorFindings, AnAddressThatDoesNotAnswerIsAWarningIfAnotherDoes) {
  auto hosts = healthy_hosts(3);
  for (HostExam* from : {&hosts[0], &hosts[2]})
    from->facts->attempts.push_back({.host = "2",
                                     .address = {.ip = "10.1.0.2", .port = 1, .interface = "eth1", .is_virtual = false},
                                     .time = {},
                                     .error = "no answer",
                                     .is_own = false});
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "addresses", {"2"}, "10.1.0.2 (eth1) does not answer from 1, 3",
                                     "--network-interfaces eth0")));
}

TEST(DoctorFindings, AnInterfaceThatHalfWorksIsNotRecommended) {
  auto hosts = healthy_hosts(2);
  hosts[0].facts->attempts.push_back({.host = "2",
                                      .address = {.ip = "fd00::2", .port = 1, .interface = "eth0", .is_virtual = false},
                                      .time = {},
                                      .error = "no answer",
                                      .is_own = false});
  auto found = problems(hosts);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].text, HasSubstr("fd00::2 (eth0)"));
  EXPECT_THAT(found[0].advice, Not(HasSubstr("--network-interfaces")));
}

TEST(DoctorFindings, LinkLocalAddressesAreNotMissed) {
  auto hosts = healthy_hosts(2);
  hosts[0].facts->attempts.push_back({.host = "2",
                                      .address = {.ip = "fe80::2", .port = 1, .interface = "eth0", .is_virtual = false},
                                      .time = {},
                                      .error = "no answer",
                                      .is_own = false});
  EXPECT_THAT(problems(hosts), IsEmpty());
}

TEST(DoctorFindings, HostsThatDidNotMeetAreNotReported) {
  auto hosts = healthy_hosts(2);
  for (HostExam& host : hosts) host.facts->attempts.clear();
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "addresses", {"1", "2"}, "not tried", "launcher")));
}

// ---- clocks

TEST(DoctorFindings, AClockIsJudgedByWhatIsCertain) {
  struct Case {
    double seconds, uncertainty;
    const char* text;  // nullptr: fine
  };
  for (const Case& one : {Case{0.9, 0, nullptr}, Case{1.5, 0.6, nullptr}, Case{-0.9, 0.5, nullptr},
                          Case{1.5, 0.1, "its clock is 1.5 s ahead of that of 1"},
                          Case{-3600, 0.1, "its clock is 3600.0 s behind that of 1"}}) {
    auto hosts = healthy_hosts(2);
    hosts[1].facts->clock = ClockOffset{one.seconds, one.uncertainty};
    if (one.text == nullptr) {
      EXPECT_THAT(problems(hosts), IsEmpty()) << one.seconds;
    } else {
      EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "clock", {"2"}, one.text, "NTP")));
    }
  }
}

TEST(DoctorFindings, AClockThatWasNotComparedIsSaid) {
  auto hosts = healthy_hosts(2);
  hosts[1].facts->clock.reset();
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "clock", {"2"}, "not compared", "addresses")));
}

// ---- resources

TEST(DoctorFindings, LimitsAreJudgedByWhatAJobNeeds) {
  auto hosts = healthy_hosts(1);
  Resources& resources = hosts[0].facts->resources;
  resources.open_files = 1024;
  resources.locked_memory = 65536;
  EXPECT_THAT(problems(hosts), IsEmpty());
  resources.open_files = 1023;
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "limits", {"1"}, "may open 1023 files", "ulimit -n")));
  resources.open_files = 255;
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::fail, "limits", {"1"}, "may open 255 files", "ulimit -n")));
  resources.open_files.reset();
  resources.has_rdma = true;
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "limits", {"1"}, "lock only 0 MiB", "memlock")));
  resources.locked_memory.reset();
  EXPECT_THAT(problems(hosts), IsEmpty());
  resources.processes = 100;
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "limits", {"1"}, "100 processes", "ulimit -u")));
}

TEST(DoctorFindings, ManyHostsNeedManyFiles) {
  auto hosts = healthy_hosts(200);
  hosts[7].facts->resources.open_files = 1024;
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "limits", {"8"}, "may need 1856", "")));
}

TEST(DoctorFindings, TheSameOnSeveralHostsIsOneFinding) {
  auto hosts = healthy_hosts(3);
  for (size_t i : {size_t{0}, size_t{2}}) hosts[i].facts->resources.shm = 64 << 20;
  hosts[1].facts->resources.shm.reset();
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "shm", {"1", "3"}, "/dev/shm has only 64 MiB", ""),
                          is_finding(Severity::warn, "shm", {"2"}, "there is no /dev/shm", "")));
}

TEST(DoctorFindings, CoresByQuotaAndSlots) {
  auto hosts = healthy_hosts(3);
  hosts[0].facts->resources.quota = 1.5;
  hosts[1].facts->resources.quota = 8;
  hosts[2].slots = 9;
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "cpus", {"1"},
                                     "8 cores, but its control group allows 1.5 cores of CPU time", "OMP_NUM_THREADS"),
                          is_finding(Severity::warn, "cpus", {"3"}, "9 slots on 8 cores", "as many slots")));
}

TEST(DoctorFindings, LittleMemoryAndOldKernels) {
  auto hosts = healthy_hosts(3);
  hosts[0].facts->resources.memory = 100 << 20;
  hosts[1].facts->resources.kernel = "3.10.0-1160.el7";
  hosts[2].facts->resources.kernel = "4.4.0";
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::warn, "memory", {"1"}, "only 100 MiB", "memory limit"),
                          is_finding(Severity::fail, "kernel", {"2"}, "3.10.0-1160.el7 has no memfd_create", "3.17")));
  hosts = healthy_hosts(2);
  hosts[0].facts->resources.machine = "aarch64";
  EXPECT_THAT(problems(hosts), ElementsAre(is_finding(Severity::warn, "kernel", {"1", "2"}, "aarch64, x86_64", "")));
}

// ---- the allreduce

TEST(DoctorFindings, TheSlowestRankCounts) {
  auto hosts = healthy_hosts(2);
  hosts[1].facts->allreduce->seconds = 0.01;
  Finding last = judge(hosts).back();
  EXPECT_EQ(last.check, "allreduce");
  EXPECT_EQ(last.text, "1 MiB over 2 hosts in 10.00 ms (105 MB/s)");
}

TEST(DoctorFindings, AnAllreduceThatFailsOrIsNotTried) {
  auto hosts = healthy_hosts(3);
  hosts[0].facts->allreduce = Trial{.error = "the sum of 3 ones is 2"};
  hosts[1].facts->allreduce = Trial{.error = "1 cannot reach 2", .was_skipped = true};
  hosts[2].facts->allreduce.reset();
  EXPECT_THAT(problems(hosts),
              ElementsAre(is_finding(Severity::fail, "allreduce", {"1"}, "ones is 2", "training"),
                          is_finding(Severity::warn, "allreduce", {"2"}, "not tried: 1 cannot reach 2", "first"),
                          is_finding(Severity::fail, "allreduce", {"3"}, "the probe ended before it", "again")));
}

}  // namespace
}  // namespace hvd::launcher
