#include "launcher/agents/agent_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <thread>

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Ends {
  std::unique_ptr<AgentLink> here, there;
  int raw = -1;  // descriptor of `there`
};

Ends make_ends() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {std::make_unique<AgentLink>(make_plain_stream(UniqueFd(fds[0]))),
          std::make_unique<AgentLink>(make_plain_stream(UniqueFd(fds[1]))), fds[1]};
}

// The next message that is not a beat, or how the link ended.
Result<AgentMessage> next(AgentLink& link, AgentLink* other = nullptr) {
  PollSet set;
  while (true) {
    auto message = link.receive();
    if (!message.ok()) return message.status();
    if (*message && !std::holds_alternative<AgentBeat>(**message)) return **message;
    if (*message) continue;
    link.add_to(set);
    if (other != nullptr) other->add_to(set);
    set.wait();
    if (other != nullptr) (void)other->receive();
  }
}

TEST(AgentLink, MessagesArriveInOrder) {
  Ends ends = make_ends();
  for (int rank = 0; rank < 100; rank++) ends.here->send(WorkerStarted{.worker = rank});
  for (int rank = 0; rank < 100; rank++) EXPECT_EQ(std::get<WorkerStarted>(*next(*ends.there)).worker, rank);
}

TEST(AgentLink, LargeOnesGoOutWhileTheOtherSideReads) {
  Ends ends = make_ends();
  std::string large(8 << 20, 'x');
  ends.here->send(AgentNotice{large});
  EXPECT_TRUE(ends.here->has_unsent());
  auto message = next(*ends.there, ends.here.get());
  ASSERT_TRUE(message.ok()) << message.status().message();
  EXPECT_EQ(std::get<AgentNotice>(*message).text, large);
}

TEST(AgentLink, SilenceIsTheEnd) {
  Ends ends = make_ends();
  TimePoint began = Clock::now();
  ends.here->set_silence(100ms, 20ms);
  EXPECT_THAT(std::string(next(*ends.here).status().message()), HasSubstr("silent for 0.1 s"));
  EXPECT_GE(Clock::now() - began, 100ms);
  EXPECT_FALSE(ends.here->receive().ok());
}

TEST(AgentLink, WhoStoodStillItselfDoesNotCallTheOtherSilent) {
  Ends ends = make_ends();
  ends.here->set_silence(100ms, 20ms);
  std::this_thread::sleep_for(200ms);  // no side reads
  EXPECT_TRUE(ends.here->receive().ok());
  EXPECT_THAT(std::string(next(*ends.here).status().message()), HasSubstr("silent for"));
}

TEST(AgentLink, BeatsKeepItAlive) {
  Ends ends = make_ends();
  ends.here->set_silence(5s, 100ms);
  ends.there->set_silence(5s, 100ms);
  PollSet set;
  TimePoint end = Clock::now() + 6s;
  while (Clock::now() < end) {
    for (AgentLink* link : {ends.here.get(), ends.there.get()}) {
      ASSERT_TRUE(link->receive().ok());
      link->add_to(set);
    }
    set.wake_at(end);
    set.wait();
  }
}

TEST(AgentLink, WhatWasSentBeforeTheEndIsHeard) {
  Ends ends = make_ends();
  ends.there->send(AgentNotice{"last words"});
  ends.there = nullptr;
  ends.here->send(AgentBeat{});  // which fails
  EXPECT_EQ(std::get<AgentNotice>(*next(*ends.here)).text, "last words");
  EXPECT_FALSE(next(*ends.here).ok());
}

TEST(AgentLink, BytesThatAreNoMessageEndIt) {
  Ends ends = make_ends();
  const char junk[] = {2, 0, 0, 0, 99, 1};
  ASSERT_EQ(::send(ends.raw, junk, sizeof junk, 0), static_cast<ssize_t>(sizeof junk));
  EXPECT_THAT(std::string(next(*ends.here).status().message()), HasSubstr("unknown kind"));
}

}  // namespace
}  // namespace hvd::launcher
