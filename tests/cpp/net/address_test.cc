#include "net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include "net/interfaces.h"
#include "net/socket.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

IpAddress ip(std::string_view text) { return parse_ip(text).value(); }
Endpoint endpoint(std::string_view text) { return {.address = parse_socket_address(text).value()}; }

std::vector<std::string> texts(const std::vector<InterfaceAddress>& addresses) {
  std::vector<std::string> all;
  for (const InterfaceAddress& address : addresses) all.push_back(to_text(address.ip));
  return all;
}
std::vector<std::string> texts(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> all;
  for (const Endpoint& each : endpoints) all.push_back(to_text(each.address));
  return all;
}

TEST(Address, TextAndValueAreTheSameThing) {
  for (const char* text : {"10.0.0.2:4711", "[fd00::2]:4711", "[::1]:0", "127.0.0.1:65535", "[fe80::1%lo]:1"}) {
    auto address = parse_socket_address(text);
    ASSERT_TRUE(address.ok()) << address.status().message();
    EXPECT_EQ(to_text(*address), text);
    EXPECT_EQ(address_of(raw_of(*address).get()).value(), *address);
  }
  EXPECT_EQ(to_text(ip("fe80::1%999999")), "fe80::1%999999");  // no such interface
  EXPECT_EQ(ip("fe80::1%lo").scope, ::if_nametoindex("lo"));
}

TEST(Address, Ipv4InsideIpv6IsIpv4) { EXPECT_EQ(to_text(ip("::ffff:10.0.0.2")), "10.0.0.2"); }

TEST(Address, WrongTextsAreRefused) {
  for (const char* text :
       {"", ":", "10.0.0.2", "10.0.0.2:", "10.0.0.2:65536", "10.0.0.2:-1", "10.0.0:1", "fd00::2:4711", "[fd00::2]",
        "[fd00::2:1", "[fe80::1%nowhere]:1", "[fd00::1%lo]:1", "host:1", "[]:1", "10.0.0.2%lo:1"}) {
    EXPECT_FALSE(parse_socket_address(text).ok()) << text;
  }
}

TEST(Address, ANetworkIsItsLeadingBits) {
  EXPECT_TRUE(in_same_network(ip("10.1.2.3"), ip("10.1.3.4"), 23));
  EXPECT_FALSE(in_same_network(ip("10.1.2.3"), ip("10.1.3.4"), 24));
  EXPECT_TRUE(in_same_network(ip("fd00::1"), ip("fd00::ffff"), 64));
  EXPECT_FALSE(in_same_network(ip("fd00::1"), ip("fd00:0:0:1::1"), 64));
  EXPECT_FALSE(in_same_network(ip("10.1.2.3"), ip("fd00::1"), 0));
}

TEST(Address, NamesAreResolvedAndSeveralMayBeGiven) {
  auto found = resolve("127.0.0.1,::1,127.0.0.1", 7);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_THAT(texts(*found), ElementsAre("127.0.0.1:7", "[::1]:7"));
  auto missing = resolve("no-such-host.invalid", 7);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'no-such-host.invalid'"));
}

TEST(Address, EndpointsSurviveTheirPublication) {
  std::vector<Endpoint> endpoints{endpoint("10.0.0.2:1"), endpoint("[fd00::2]:65535"), endpoint("[fe80::1%lo]:3")};
  endpoints[0].interface = "eth0";
  Bytes bytes;
  Encoder out(bytes);
  encode(out, endpoints);
  auto read = decode_endpoints(bytes);
  ASSERT_TRUE(read.ok());
  endpoints[2].address.ip.scope = 0;
  EXPECT_EQ(*read, endpoints);
  for (size_t length = 0; length < bytes.size(); length++) {
    EXPECT_FALSE(decode_endpoints(ByteView(bytes).first(length)).ok());
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_endpoints(bytes).ok());
}

// A host with two networks, a bridge for containers, and everything else that may be around.
const std::vector<InterfaceAddress> kHost{
    {.interface = "lo", .ip = ip("127.0.0.1"), .prefix = 8},
    {.interface = "docker0", .ip = ip("172.17.0.1"), .prefix = 16, .is_virtual = true},
    {.interface = "eth0", .ip = ip("10.0.0.1"), .prefix = 24, .speed = 1000},
    {.interface = "eth1", .ip = ip("192.168.0.1"), .prefix = 24, .speed = 100000},
    {.interface = "eth1", .ip = ip("169.254.7.7"), .prefix = 16, .speed = 100000},
    {.interface = "lo", .ip = ip("::1"), .prefix = 128},
    {.interface = "eth1", .ip = ip("fe80::1%3"), .prefix = 64, .speed = 100000},
    {.interface = "eth1", .ip = ip("fd00::1"), .prefix = 64, .speed = 100000},
};

TEST(Interfaces, RealAndFastOnesArePreferredAndBridgesAreLast) {
  auto usable = usable_addresses(kHost, {});
  ASSERT_TRUE(usable.ok());
  EXPECT_THAT(texts(*usable),
              ElementsAre("192.168.0.1", "fd00::1", "10.0.0.1", to_text(ip("fe80::1%3")), "172.17.0.1"));
}

TEST(Interfaces, NamesRestrictAndThoseOfOtherHostsArePassedOver) {
  EXPECT_THAT(texts(*usable_addresses(kHost, {"ens5", "eth0"})), ElementsAre("10.0.0.1"));
  EXPECT_THAT(texts(*usable_addresses(kHost, {"lo"})), ElementsAre("127.0.0.1", "::1"));
  auto none = usable_addresses(kHost, {"ens5", "ib0"});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::invalid_argument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("ens5, ib0"));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("lo, docker0, eth0, eth1"));
}

TEST(Interfaces, LoopbackServesAHostWithNothingElse) {
  EXPECT_THAT(texts(*usable_addresses({kHost[0], kHost[5]}, {})), ElementsAre("127.0.0.1", "::1"));
  EXPECT_FALSE(usable_addresses({}, {}).ok());
}

TEST(Interfaces, ThisHostHasSome) {
  auto all = read_interfaces();
  ASSERT_TRUE(all.ok());
  auto usable = usable_addresses(*all, {});
  ASSERT_TRUE(usable.ok());
  EXPECT_FALSE(usable->empty());
}

TEST(Interfaces, APeerInOurNetworkIsTriedFirstAndOurOwnAddressLast) {
  std::vector<Endpoint> peer{endpoint("172.17.0.1:9"), endpoint("203.0.113.5:9"), endpoint("172.17.0.9:9"),
                             endpoint("10.0.0.7:9"), endpoint("[fd00::7]:9")};
  EXPECT_THAT(texts(order_for_connecting(peer, kHost)),
              ElementsAre("10.0.0.7:9", "[fd00::7]:9", "203.0.113.5:9", "172.17.0.9:9", "172.17.0.1:9"));
}

TEST(Interfaces, ALinkLocalPeerIsTriedThroughOurInterfaces) {
  auto ordered = order_for_connecting({endpoint("[fe80::7]:9")}, kHost);
  ASSERT_EQ(ordered.size(), 1u);
  EXPECT_EQ(ordered[0].address.ip.scope, 3u);
  EXPECT_TRUE(order_for_connecting({endpoint("[fe80::7]:9")}, {kHost[0]}).empty());
}

TEST(Socket, ListensOnOnePortOfEveryAddressOfAnInterface) {
  auto listener = listen_on(std::vector<std::string>{"lo"});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_EQ(listener->sockets.size(), listener->endpoints.size());
  for (const Endpoint& each : listener->endpoints) {
    EXPECT_TRUE(each.address.ip.is_loopback());
    EXPECT_EQ(each.address.port, listener->port);
    EXPECT_EQ(each.interface, "lo");
  }
}

TEST(Socket, ListensEverywhereWithOneSocketAndPublishesWhatIsUsable) {
  auto listener = listen_on(std::vector<std::string>{});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_EQ(listener->sockets.size(), 1u);
  ASSERT_FALSE(listener->endpoints.empty());
  EXPECT_EQ(listener->endpoints[0].address.port, listener->port);
}

TEST(Socket, ARangeOfPortsIsTriedInOrder) {
  auto taken = listen_on(std::vector{ip("127.0.0.1")});
  ASSERT_TRUE(taken.ok());
  auto first = taken->port;
  auto none = listen_on(std::vector{ip("127.0.0.1")}, {.first = first, .last = first});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("127.0.0.1:" + std::to_string(first)));
  EXPECT_FALSE(listen_on(std::vector{ip("127.0.0.1")}, {.first = 5, .last = 4}).ok());
  if (first > 65000) GTEST_SKIP() << "no room above the port that the kernel chose";
  auto next = listen_on(std::vector{ip("127.0.0.1")}, {.first = first, .last = static_cast<uint16_t>(first + 500)});
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_GT(next->port, first);
}

TEST(Socket, AnUnknownCongestionAlgorithmIsNoError) {
  auto listener = listen_on(std::vector{ip("127.0.0.1")});
  auto socket = start_connect(listener->endpoints[0].address, {.buffer_bytes = 65536, .congestion = "no-such-thing"});
  ASSERT_TRUE(socket.ok()) << socket.status().message();
}

}  // namespace
}  // namespace hvd
