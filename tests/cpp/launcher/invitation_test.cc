#include "launcher/agents/invitation.h"

#include <gtest/gtest.h>

#include <thread>

#include "launcher/agents/agent_call.h"
#include "launcher/agents/invited_door.h"
#include "net/connector.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLimit = 60s;

// One side of an invitation.
struct Party {
  std::string identity = make_tls_identity().value();
  Fingerprint certificate = fingerprint_of(identity).value();
};

TEST(Invitation, ArrivesAsItWasWritten) {
  Invitation invitation{
      .certificate = Party().certificate, .port = 4711, .seconds = 30, .addresses = "10.0.0.2,fd00::2"};
  std::string text = to_text(invitation);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef.:,"), std::string::npos) << text;
  auto read = parse_invitation(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->certificate, invitation.certificate);
  EXPECT_EQ(read->port, 4711);
  EXPECT_EQ(read->seconds, 30);
  EXPECT_EQ(read->addresses, "10.0.0.2,fd00::2");
}

TEST(Invitation, WhatIsNoneIsRefused) {
  std::string key(64, 'a');
  ASSERT_TRUE(parse_invitation(key + ",1,1,a").ok());
  for (const std::string& text :
       {std::string(), key, key + ",1,1", key + ",1,1,", key + ",0,1,a", key + ",65536,1,a", key + ",1,0,a",
        key + ",1,-1,a", key + ",1,x,a", key.substr(1) + ",1,1,a", key.substr(2) + ",1,1,a", key + "aa,1,1,a",
        std::string(64, 'g') + ",1,1,a", key + ",1,1," + std::string(5000, 'a')})
    EXPECT_FALSE(parse_invitation(text).ok()) << text;
}

TEST(Invitation, AnAnswerIsReadAndNothingElseIs) {
  Fingerprint certificate = Party().certificate;
  std::string text = answer_text(certificate);
  EXPECT_LT(kAgentMark.size() + text.size(), kLongestOpening);
  EXPECT_EQ(parse_answer(text).value(), certificate);
  for (const std::string& other : {std::string(), text + "0", text.substr(0, text.size() - 2), text.substr(1)})
    EXPECT_FALSE(parse_answer(other).ok()) << other;
}

// Connects as an agent with this certificate does.
Result<std::unique_ptr<Stream>> follow(const Invitation& invitation, const Party& party, TimePoint until) {
  auto credentials = invited_credentials(Side::agent, party.identity, invitation.certificate);
  Target target{.name = "the launcher",
                .endpoints = resolve("127.0.0.1", invitation.port).value(),
                .identity = {.purpose = Purpose::agent}};
  return connect(std::move(target), std::move(*credentials), until);
}

// Whether TLS refuses the party; a connection that is not accepted yet does not count.
bool is_refused(const Invitation& invitation, const Party& party) {
  for (TimePoint end = Clock::now() + kLimit; Clock::now() < end;) {
    auto stream = follow(invitation, party, Clock::now() + 500ms);
    if (stream.ok()) return false;
    if (stream.status().message().find("TLS: ") != std::string_view::npos) return true;
  }
  return false;
}

// Drives a door until an agent has connected, or until stop().
class OpenDoor {
 public:
  explicit OpenDoor(InvitedDoor& door)
      : thread_([this, &door](std::stop_token stop) {
          while (!stop.stop_requested() && link == nullptr) {
            PollSet set;
            door.add_to(set);
            set.wake_at(Clock::now() + 20ms);
            set.wait();
            link = door.look();
          }
        }) {}
  void join() { thread_.join(); }
  void stop() {
    thread_.request_stop();
    thread_.join();
  }
  std::unique_ptr<AgentLink> link;

 private:
  std::jthread thread_;
};

TEST(InvitedDoor, AcceptsOnlyTheAgentThatAnswered) {
  auto door = std::move(*InvitedDoor::create({"lo"}, Clock::now() + kLimit));
  Party agent, stranger;
  ASSERT_TRUE(door->open(answer_text(agent.certificate)).ok());
  OpenDoor open(*door);
  EXPECT_TRUE(is_refused(door->invitation(), stranger));
  auto stream = follow(door->invitation(), agent, Clock::now() + kLimit);
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  open.join();
  ASSERT_NE(open.link, nullptr);
}

TEST(InvitedDoor, AnAgentRefusesAnotherLauncher) {
  auto theirs = std::move(*InvitedDoor::create({"lo"}, Clock::now() + kLimit));
  auto other = std::move(*InvitedDoor::create({"lo"}, Clock::now() + kLimit));
  Party agent;
  ASSERT_TRUE(other->open(answer_text(agent.certificate)).ok());  // fingerprints are public
  OpenDoor open(*other);
  Invitation misled = theirs->invitation();
  misled.port = other->invitation().port;
  EXPECT_TRUE(is_refused(misled, agent));
  open.stop();
  EXPECT_EQ(open.link, nullptr);
}

// Proves the (public) key of the handshake, but not with the certificate of the agent.
TEST(InvitedDoor, FingerprintsAloneOpenNothing) {
  auto door = std::move(*InvitedDoor::create({"lo"}, Clock::now() + kLimit));
  Party agent, stranger;
  ASSERT_TRUE(door->open(answer_text(agent.certificate)).ok());
  OpenDoor open(*door);
  Credentials stolen = invited_credentials(Side::agent, agent.identity, door->invitation().certificate).value();
  Target target{.name = "the launcher",
                .endpoints = resolve("127.0.0.1", door->invitation().port).value(),
                .identity = {.purpose = Purpose::agent}};
  Credentials own_certificate = stolen, plain = stolen, from_key = encrypted_credentials(stolen.key).value();
  own_certificate.tls = TlsContext::create(stranger.identity, door->invitation().certificate).value();
  plain.tls = nullptr;
  for (const Credentials& credentials : {own_certificate, plain, from_key})
    EXPECT_FALSE(connect(target, credentials, Clock::now() + 500ms).ok());
  open.stop();
  EXPECT_EQ(open.link, nullptr);
}

TEST(InvitedDoor, EveryCertificateIsNew) { EXPECT_NE(Party().certificate, Party().certificate); }

TEST(InvitedDoor, StaysShutForAnAnswerThatIsNone) {
  auto door = std::move(*InvitedDoor::create({"lo"}, Clock::now() + kLimit));
  EXPECT_FALSE(door->open("hello").ok());
  EXPECT_FALSE(door->is_open());
  EXPECT_EQ(door->look(), nullptr);
}

}  // namespace
}  // namespace hvd::launcher
