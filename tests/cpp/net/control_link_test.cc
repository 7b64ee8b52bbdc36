// Control links over real sockets, with time passed in.
#include "net/control_link.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const TimePoint kStart = TimePoint(1000s);

struct Links {
  UniqueFd raw;  // a copy of b's socket, for bytes that no link sends
  std::unique_ptr<ControlLink> a, b;
};

Links make_links(ControlLinkSettings settings = {}) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {
      UniqueFd(::dup(ends[1])),
      std::make_unique<ControlLink>(make_plain_stream(UniqueFd(ends[0])), "rank 4 (hostb, pid 7)", settings, kStart),
      std::make_unique<ControlLink>(make_plain_stream(UniqueFd(ends[1])), "rank 0 (hosta, pid 5)", settings, kStart)};
}

ByteView view_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string next_message(ControlLink& link) {
  ByteView message;
  if (!link.receive(message)) return "none";
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

// The peer's last bytes are one event, its end the next.
Status progress_to_the_end(ControlLink& link) {
  while (!link.is_over()) {
    if (Status status = link.progress(kStart); !status.ok()) return status;
  }
  return {};
}

TEST(ControlLink, MessagesGoBothWaysInOrder) {
  Links links = make_links();
  links.a->send(view_of("one"));
  links.a->send(view_of(""));
  links.b->send(view_of("three"));
  EXPECT_TRUE(links.a->progress(kStart).ok());
  EXPECT_TRUE(links.b->progress(kStart).ok());
  EXPECT_EQ(next_message(*links.b), "one");
  EXPECT_EQ(next_message(*links.b), "");
  EXPECT_EQ(next_message(*links.b), "none");
  EXPECT_EQ(next_message(*links.a), "three");
  EXPECT_FALSE(links.a->has_messages());
}

// See kSendUnit: tensors that are sent after it must not be shifted by a few bytes.
TEST(ControlLink, WhatItSendsAreWholeUnits) {
  Links links = make_links();
  std::byte room[4 * kSendUnit];
  auto sent = [&] { return ::recv(links.raw.get(), room, sizeof room, MSG_DONTWAIT); };
  links.a->send(view_of(""));
  EXPECT_EQ(sent(), ssize_t{kSendUnit});
  links.a->send(view_of(std::string(kSendUnit - 5, 'x')));  // with its head it fills one
  EXPECT_EQ(sent(), ssize_t{kSendUnit});
  links.a->send(view_of(std::string(kSendUnit - 4, 'x')));
  EXPECT_EQ(sent(), ssize_t{2 * kSendUnit});
  links.a->say_goodbye();
  EXPECT_EQ(sent(), ssize_t{kSendUnit});
}

TEST(ControlLink, MessagesOfEverySizeKeepTheirBytes) {
  Links links = make_links();
  for (size_t size = 0; size < 3 * kSendUnit; size++) links.a->send(view_of(std::string(size, char('a' + size % 26))));
  ASSERT_TRUE(links.b->progress(kStart).ok());
  for (size_t size = 0; size < 3 * kSendUnit; size++) {
    EXPECT_EQ(next_message(*links.b), std::string(size, char('a' + size % 26)));
  }
  EXPECT_EQ(next_message(*links.b), "none");
}

TEST(ControlLink, LongMessagesPassFullSocketsInBothDirections) {
  Links links = make_links();
  std::string up(5'000'000, 'u'), down(7'000'000, 'd');
  links.a->send(view_of(up));
  links.b->send(view_of(down));
  EXPECT_TRUE(links.a->has_unsent());
  EXPECT_LT(links.a->next_deadline(), kStart + 10ms);
  while (links.a->has_unsent() || links.b->has_unsent()) {
    ASSERT_TRUE(links.a->progress(kStart).ok());
    ASSERT_TRUE(links.b->progress(kStart).ok());
  }
  ASSERT_TRUE(links.a->progress(kStart).ok());
  EXPECT_TRUE(next_message(*links.a) == down);
  EXPECT_TRUE(next_message(*links.b) == up);
}

TEST(ControlLink, HeartbeatsKeepAnIdleLinkAlive) {
  Links links = make_links();
  TimePoint now = kStart;
  for (int i = 0; i < 100; i++) {
    now = std::min(links.a->next_beat(), links.b->next_beat());
    ASSERT_TRUE(links.a->progress(now).ok());
    ASSERT_TRUE(links.b->progress(now).ok());
    EXPECT_EQ(next_message(*links.a), "none");
  }
  EXPECT_GE(now, kStart + 50s);
  EXPECT_LE(now, kStart + 101s);
}

// The watch reads while the driver handles what it has received.
TEST(ControlLink, AMessageStaysWhereItIsWhileMoreAreRead) {
  Links links = make_links();
  ByteView first, second;
  links.b->send(view_of("one"));
  links.b->send(view_of("two"));
  ASSERT_TRUE(links.a->progress(kStart).ok());
  ASSERT_TRUE(links.a->receive(first));
  links.b->send(view_of(std::string(100'000, 'x')));
  ASSERT_TRUE(links.a->progress(kStart).ok());
  EXPECT_TRUE(std::ranges::equal(first, view_of("one")));
  EXPECT_TRUE(links.a->has_messages());
  EXPECT_EQ(next_message(*links.a), "two");
  EXPECT_EQ(next_message(*links.a), std::string(100'000, 'x'));
  EXPECT_EQ(next_message(*links.a), "none");
  EXPECT_FALSE(links.a->has_messages());
}

TEST(ControlLink, ASilentPeerIsLost) {
  Links links = make_links();
  TimePoint now = kStart;
  Status status;
  while (status.ok()) {
    now = links.a->next_beat();
    status = links.a->progress(now);
  }
  EXPECT_EQ(now, kStart + 5s);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_EQ(status.message(), "rank 4 (hostb, pid 7) is lost: silent for 5.0 s");
  EXPECT_EQ(status.origin().kind, OriginKind::silent);
  EXPECT_TRUE(links.a->is_over());
  EXPECT_EQ(links.a->next_deadline(), kNever);
  EXPECT_EQ(links.a->next_beat(), kNever);
  EXPECT_FALSE(links.a->progress(now).ok());
  // A peer that still receives from us, although we do not receive from it, gets the reason why we leave.
  EXPECT_TRUE(links.b->progress(kStart).ok());
  EXPECT_EQ(links.b->failure().message(), status.message());
}

TEST(ControlLink, WhoWasAwayItselfDoesNotCallThePeerSilent) {
  Links links = make_links();
  EXPECT_TRUE(links.a->progress(kStart + 1s).ok());
  EXPECT_TRUE(links.a->progress(kStart + 100s).ok());
  EXPECT_TRUE(links.a->progress(kStart + 102s).ok());
  EXPECT_TRUE(links.a->progress(kStart + 104s).ok());
  EXPECT_FALSE(links.a->progress(kStart + 105s).ok());
}

TEST(ControlLink, TheEndOfThePeerIsALoss) {
  Links links = make_links();
  links.b->send(view_of("last"));
  links.b.reset();
  links.raw = UniqueFd();
  Status status = progress_to_the_end(*links.a);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 4 (hostb, pid 7) is lost: connection closed"));
  EXPECT_EQ(next_message(*links.a), "last");
  links.a->send(view_of("into the void"));
  EXPECT_FALSE(links.a->has_unsent());
}

TEST(ControlLink, TheEndAfterGoodbyeIsNone) {
  Links links = make_links();
  links.b->say_goodbye();
  links.b.reset();
  links.raw = UniqueFd();
  EXPECT_TRUE(progress_to_the_end(*links.a).ok());
  EXPECT_TRUE(links.a->has_departed());
  EXPECT_TRUE(links.a->progress(kStart + 60s).ok());
}

TEST(ControlLink, AFailureIsSpreadOnceAndOutlivesItsSender) {
  Links links = make_links();
  links.b->spread({Code::peer_lost, "rank 9 (hostc, pid 1) is gone"});
  links.b->spread({Code::unknown, "a consequence"});
  links.b.reset();
  links.raw = UniqueFd();
  EXPECT_FALSE(progress_to_the_end(*links.a).ok());
  EXPECT_EQ(links.a->failure().code(), Code::peer_lost);
  EXPECT_EQ(links.a->failure().message(), "rank 9 (hostc, pid 1) is gone");
}

TEST(ControlLink, AFailureKeepsItsCode) {
  for (int32_t code = 1; code <= static_cast<int32_t>(kLastCode); code++) {
    Links links = make_links();
    links.b->spread({static_cast<Code>(code), "failed"});
    links.b.reset();
    links.raw = UniqueFd();
    EXPECT_FALSE(progress_to_the_end(*links.a).ok());
    EXPECT_EQ(links.a->failure().code(), static_cast<Code>(code));
  }
}

TEST(ControlLink, FramesThatNoLinkSendsEndIt) {
  for (std::string bytes : {std::string("\xff\xff\xff\xff\x00", 5), std::string("\x00\x00\x00\x00\x09", 5)}) {
    Links links = make_links();
    ASSERT_EQ(::send(links.raw.get(), bytes.data(), bytes.size(), 0), 5);
    Status status = links.a->progress(kStart);
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_THAT(std::string(status.message()), HasSubstr("it sent invalid data"));
  }
}

TEST(ControlLink, AKilledProcessIsSeenAtOnce) {
  Links links = make_links();
  pid_t child = ::fork();
  if (child == 0) {
    links.a.reset();
    for (;;) ::pause();
  }
  links.b.reset();
  links.raw = UniqueFd();
  ASSERT_TRUE(links.a->progress(kStart).ok());
  ::kill(child, SIGKILL);
  pollfd end{.fd = links.a->descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&end, 1, 60'000), 1);
  EXPECT_EQ(links.a->progress(kStart).code(), Code::peer_lost);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace hvd
