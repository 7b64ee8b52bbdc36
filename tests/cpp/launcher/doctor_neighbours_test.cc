#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/doctor/door.h"
#include "launcher/doctor/neighbours.h"
#include "net/tls.h"

namespace hvd::launcher {
namespace {

using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(20);  // for working connections

TimePoint soon() { return Clock::now() + kPatience; }

Credentials plain() { return {.key = *Key::random(), .tls = nullptr}; }

Credentials with_tls() {
  Credentials credentials = plain();
  auto identity = make_tls_identity();
  EXPECT_TRUE(identity.ok());
  auto tls = TlsContext::create(*identity);
  EXPECT_TRUE(tls.ok());
  credentials.tls = *tls;
  return credentials;
}

class DoctorNeighbours : public ::testing::TestWithParam<bool> {
 protected:
  Credentials credentials_ = GetParam() ? with_tls() : plain();
  std::vector<std::unique_ptr<Stream>> streams_;
};

INSTANTIATE_TEST_SUITE_P(Streams, DoctorNeighbours, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "tls" : "plain"; });

TEST_P(DoctorNeighbours, EveryAddressOfEveryNeighbourIsTried) {
  auto one = ProbeDoor::open({}, credentials_, 1), two = ProbeDoor::open({}, credentials_, 2);
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_FALSE((*one)->addresses().empty());
  std::vector<Neighbour> neighbours{{1, "b", (*one)->addresses()}, {2, "c", (*two)->addresses()}};
  auto attempts = try_addresses(neighbours, credentials_, 0, kPatience, soon(), streams_);
  ASSERT_EQ(attempts.size(), (*one)->addresses().size() + (*two)->addresses().size());
  for (const Attempt& attempt : attempts) {
    EXPECT_TRUE(attempt.time) << attempt.address.ip << ": " << attempt.error;
    EXPECT_TRUE(attempt.is_own) << attempt.address.ip;  // all are this machine's
  }
  EXPECT_EQ(attempts.front().host, "b");
  EXPECT_EQ(attempts.back().host, "c");
  ASSERT_EQ(streams_.size(), 2U);
  EXPECT_TRUE(streams_[0] && streams_[1]);
}

TEST_P(DoctorNeighbours, ClocksAreCompared) {
  constexpr double kAhead = 1000;
  auto door = ProbeDoor::open({"lo"}, credentials_, 0, [] { return wall_time() + kAhead; });
  ASSERT_TRUE(door.ok());
  auto attempts = try_addresses({{0, "a", (*door)->addresses()}}, credentials_, 1, kPatience, soon(), streams_);
  ASSERT_TRUE(streams_[0]);
  auto offset = compare_clocks(*streams_[0], soon());
  ASSERT_TRUE(offset.ok()) << offset.status().message();
  EXPECT_GE(offset->uncertainty, 0);
  EXPECT_NEAR(offset->seconds, -kAhead, offset->uncertainty + 0.001);
}

TEST_P(DoctorNeighbours, ADoorThatClosesIsAnErrorAndNoHang) {
  auto door = ProbeDoor::open({"lo"}, credentials_, 0);
  ASSERT_TRUE(door.ok());
  try_addresses({{0, "a", (*door)->addresses()}}, credentials_, 1, kPatience, soon(), streams_);
  ASSERT_TRUE(streams_[0]);
  door->reset();
  EXPECT_FALSE(compare_clocks(*streams_[0], soon()).ok());
}

TEST_P(DoctorNeighbours, AnotherRankAtTheAddressIsNotTheNeighbour) {
  auto door = ProbeDoor::open({"lo"}, credentials_, 5);
  ASSERT_TRUE(door.ok());
  auto attempts = try_addresses({{2, "c", (*door)->addresses()}}, credentials_, 1, kPatience, soon(), streams_);
  ASSERT_FALSE(attempts.empty());
  EXPECT_FALSE(attempts[0].time);
  EXPECT_NE(attempts[0].error, "");
  EXPECT_FALSE(streams_[0]);
}

TEST(DoctorNeighbour, ADeadPortAndANonsenseAddressAreReasons) {
  uint16_t port = 0;
  {
    auto listener = listen_on(std::vector<std::string>{"lo"});
    ASSERT_TRUE(listener.ok());
    port = listener->port;
  }
  std::vector<Address> addresses{{.ip = "127.0.0.1", .port = port, .interface = "lo", .is_virtual = false},
                                 {.ip = "not an address", .port = 1, .interface = "lo", .is_virtual = false}};
  std::vector<std::unique_ptr<Stream>> streams;
  auto attempts = try_addresses({{1, "b", addresses}}, plain(), 0, std::chrono::seconds(2), soon(), streams);
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_THAT(attempts[0].error, HasSubstr("refused"));
  EXPECT_THAT(attempts[0].error, ::testing::Not(HasSubstr("127.0.0.1")));
  EXPECT_THAT(attempts[1].error, HasSubstr("not an address"));
}

TEST(DoctorNeighbour, WithoutTimeNothingIsTried) {
  auto credentials = plain();
  auto door = ProbeDoor::open({"lo"}, credentials, 1);
  ASSERT_TRUE(door.ok());
  std::vector<std::unique_ptr<Stream>> streams;
  auto attempts = try_addresses({{1, "b", (*door)->addresses()}}, credentials, 0, kPatience, TimePoint::min(), streams);
  EXPECT_THAT(attempts[0].error, HasSubstr("no time left"));
}

TEST(DoctorNeighbour, ManyMoreAddressesThanCallsAtOnce) {
  auto credentials = plain();
  auto door = ProbeDoor::open({"lo"}, credentials, 1);
  ASSERT_TRUE(door.ok());
  std::vector<Neighbour> neighbours(200, {1, "b", {(*door)->addresses().front()}});
  std::vector<std::unique_ptr<Stream>> streams;
  auto attempts = try_addresses(neighbours, credentials, 0, kPatience, soon(), streams);
  ASSERT_EQ(attempts.size(), 200U);
  for (const Attempt& attempt : attempts) EXPECT_TRUE(attempt.time) << attempt.error;
}

}  // namespace
}  // namespace hvd::launcher
