#include "net/congestion.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "net/socket.h"

namespace hvd {
namespace {

std::string congestion_of(const UniqueFd& socket) {
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length);
  return name;
}

struct Pair {
  UniqueFd caller, called;
};

// Both ends of a connection over the loopback interface.
Pair connect_pair(const std::string& congestion) {
  auto listener = listen_on({IpAddress{.bytes = {127, 0, 0, 1}}});
  EXPECT_TRUE(listener.ok());
  set_congestion(listener->sockets[0].get(), congestion);
  auto caller = start_connect(listener->endpoints[0].address, {.congestion = congestion});
  EXPECT_TRUE(caller.ok());
  pollfd ready{.fd = listener->sockets[0].get(), .events = POLLIN, .revents = 0};
  ::poll(&ready, 1, -1);
  return {std::move(*caller), UniqueFd(::accept4(listener->sockets[0].get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(Congestion, ANamedOneIsTakenFromTheBeginning) {
  EXPECT_EQ(first_congestion("reno"), "reno");
  Pair pair = connect_pair("reno");  // every kernel has it
  for (const UniqueFd* end : {&pair.caller, &pair.called}) {
    EXPECT_EQ(congestion_of(*end), "reno");
    settle_congestion(end->get(), "reno");
    EXPECT_EQ(congestion_of(*end), "reno");
  }
}

TEST(Congestion, TheHostsDefaultIsLeftAlone) {
  EXPECT_EQ(first_congestion("default"), "");
  std::string usual = congestion_of(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  Pair pair = connect_pair("");
  settle_congestion(pair.caller.get(), "default");
  EXPECT_EQ(congestion_of(pair.caller), usual);
  EXPECT_EQ(congestion_of(pair.called), usual);
}

TEST(Congestion, OneThatThisHostDoesNotHaveIsNoFailure) {
  Pair pair = connect_pair("no-such-thing");
  EXPECT_FALSE(congestion_of(pair.called).empty());
}

// What has not been connected has no round trip, so it may be a long one.
TEST(Congestion, AutoGoesBackToTheDefaultUnlessTheWayIsKnownToBeShort) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string usual = congestion_of(socket);
  EXPECT_EQ(first_congestion("auto"), usual.starts_with("bbr") ? "reno" : "");
  set_congestion(socket.get(), first_congestion("auto"));
  settle_congestion(socket.get(), "auto");
  EXPECT_EQ(congestion_of(socket), usual);
}

}  // namespace
}  // namespace hvd
