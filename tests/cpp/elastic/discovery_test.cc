#include "elastic/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::elastic {

void PrintTo(const HostSlots& host, std::ostream* out) { *out << host.name << ':' << host.slots; }

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Step = Discovery::Step;

TEST(DiscoveryOutput, HasHostsWithAndWithoutSlots) {
  DiscoveryAnswer answer = parse_discovery("a\nb:2\n  user@c.example.org:3 \r\n[fe80::1%eth0]:4\n::1\nd:0", 8);
  EXPECT_THAT(answer.hosts, ElementsAre(HostSlots{"a", 8}, HostSlots{"b", 2}, HostSlots{"user@c.example.org", 3},
                                        HostSlots{"fe80::1%eth0", 4}, HostSlots{"::1", 8}, HostSlots{"d", 0}));
  EXPECT_THAT(answer.mistakes, IsEmpty());
}

TEST(DiscoveryOutput, MayHaveCommentsBlanksAndRepetitions) {
  DiscoveryAnswer answer = parse_discovery("# hosts of today\n\n a:1 # the first\n \t \nb:2\na:4\n", 1);
  EXPECT_THAT(answer.hosts, ElementsAre(HostSlots{"a", 4}, HostSlots{"b", 2}));
  EXPECT_THAT(answer.mistakes, IsEmpty());
}

TEST(DiscoveryOutput, WrongLinesAreNamedAndSkipped) {
  DiscoveryAnswer answer = parse_discovery("a:x\n-oProxyCommand=evil\nb:2\ntwo words\n[::1\nhost:4:2\n", 1);
  EXPECT_THAT(answer.hosts, ElementsAre(HostSlots{"b", 2}));
  EXPECT_THAT(answer.mistakes,
              ElementsAre("\"a:x\" has an invalid number of slots", "\"-oProxyCommand=evil\" is not a host name",
                          "\"two words\" is not a host name", "\"[::1\" has no ]", "and 1 more line"));
}

TEST(DiscoveryOutput, ManyWrongLinesMakeAShortMessage) {
  std::string output = "\x1b[31mred\n";
  for (int i = 0; i < 1000; i++) output += std::string(1000, '!') + "\n";
  DiscoveryAnswer answer = parse_discovery(output + "a:99999999999\n:3\n[x]:1\n[::1]2\na:-1\nok", 1);
  EXPECT_THAT(answer.hosts, ElementsAre(HostSlots{"ok", 1}));
  ASSERT_EQ(answer.mistakes.size(), 5u);
  EXPECT_EQ(answer.mistakes[0], "\"?[31mred\" is not a host name");
  EXPECT_EQ(answer.mistakes[1], "\"" + std::string(80, '!') + "...\" is not a host name");
  EXPECT_EQ(answer.mistakes[4], "and 1002 more lines");
}

class Script : public testing::Test {
 protected:
  Step step() { return discovery_.next_step(now_, said_); }
  Discovery::Outcome end(const Discovery::Run& run) {
    Discovery::Outcome outcome = discovery_.ended(run, now_);
    for (Say& line : outcome.said) said_.push_back(line);
    return outcome;
  }
  Discovery::Outcome run(const Discovery::Run& run) {
    now_ = std::max(now_, discovery_.next_timer());
    EXPECT_EQ(step(), Step::start);
    return end(run);
  }
  std::vector<std::string> take_said() {
    std::vector<std::string> texts;
    for (Say& line : said_) texts.push_back(line.text);
    said_.clear();
    return texts;
  }
  void pass(double duration) { now_ += seconds(duration); }
  double until_timer() const { return seconds_of(discovery_.next_timer() - now_); }

  TimePoint now_{seconds(1000)};
  Discovery discovery_{{}, now_};
  std::vector<Say> said_;
};

TEST_F(Script, RunsEverySecondAndTellsOnlyWhatIsNew) {
  EXPECT_EQ(step(), Step::start);
  EXPECT_EQ(step(), Step::nothing) << "one at a time";
  pass(0.1);
  EXPECT_THAT(end({.output = "a:1\n"}).hosts->hosts, ElementsAre(HostSlots{"a", 1}));
  EXPECT_DOUBLE_EQ(until_timer(), 0.9);
  EXPECT_EQ(step(), Step::nothing);
  EXPECT_FALSE(run({.output = "a:1\n"}).hosts);
  EXPECT_THAT(run({.output = "a:2\n"}).hosts->hosts, ElementsAre(HostSlots{"a", 2}));
  EXPECT_THAT(run({.output = ""}).hosts->hosts, IsEmpty()) << "an empty answer is one";
  EXPECT_THAT(take_said(), IsEmpty());
}

TEST_F(Script, FailuresAreSaidOnceAndTheLastAnswerStays) {
  run({.output = "a:1\n"});
  EXPECT_FALSE(run({.code = 1, .output = "b:1\n", .errors = "trace\n  no such service \n\n"}).hosts);
  EXPECT_THAT(
      take_said(),
      ElementsAre("the host discovery script ended with exit code 1: no such service; the hosts are unchanged"));
  run({.code = 1, .errors = "other words"});
  run({.signal = 11});
  EXPECT_THAT(take_said(), IsEmpty());
  EXPECT_FALSE(run({.output = "a:1\n"}).hosts);
  EXPECT_THAT(take_said(), ElementsAre("the host discovery script works again after 3 failed runs"));
  run({.signal = 9});
  EXPECT_THAT(take_said(), ElementsAre("the host discovery script was killed by signal 9; the hosts are unchanged"));
}

TEST_F(Script, AFirstRunThatFailsIsAnError) {
  Discovery::Outcome outcome = run({.code = 127, .errors = "sh: discover.sh: not found"});
  EXPECT_EQ(outcome.status.message(),
            "the first run of the host discovery script ended with exit code 127: sh: discover.sh: not found");
}

TEST_F(Script, ASlowRunIsSaidOnceAndKilledAtItsLimit) {
  run({.output = "a:1\n"});
  pass(1);
  EXPECT_EQ(step(), Step::start);
  pass(5);
  EXPECT_EQ(step(), Step::nothing);
  EXPECT_THAT(take_said(), ElementsAre("the host discovery script has been running for 5.0 s; the limit is 60.0 s"));
  EXPECT_DOUBLE_EQ(until_timer(), 55);
  pass(55);
  EXPECT_EQ(step(), Step::kill);
  EXPECT_EQ(step(), Step::nothing) << "once";
  EXPECT_EQ(discovery_.next_timer(), kNever);
  EXPECT_FALSE(end({.signal = 9}).hosts);
  EXPECT_THAT(take_said(), ElementsAre("the host discovery script took more than 60.0 s; the hosts are unchanged"));
  EXPECT_DOUBLE_EQ(until_timer(), 0.25) << "it does not run all the time";

  pass(0.25);
  EXPECT_EQ(step(), Step::start);
  pass(6);
  EXPECT_EQ(step(), Step::nothing);
  EXPECT_TRUE(end({.output = "b:1\n"}).hosts) << "slow is not wrong";
  EXPECT_THAT(take_said(), ElementsAre(HasSubstr("works again"))) << "that it is slow was said";
}

TEST_F(Script, WrongLinesAreSaidOncePerStretch) {
  EXPECT_THAT(run({.output = "a:1\n?1\n"}).hosts->hosts, ElementsAre(HostSlots{"a", 1}));
  EXPECT_THAT(take_said(), ElementsAre("lines of the host discovery script are skipped: \"?1\" is not a host name"));
  run({.output = "a:1\n?2\n"});
  EXPECT_THAT(take_said(), IsEmpty());
  run({.output = "a:1\n"});
  run({.output = "a:1\n?3\n"});
  EXPECT_THAT(take_said(), ElementsAre(HasSubstr("?3")));
}

}  // namespace
}  // namespace hvd::elastic
