#include "net/host_table.h"

#include <gmock/gmock.h>

#include <random>

namespace hvd {
namespace {

using testing::HasSubstr;

std::vector<HostRecord> make_hosts() {
  SocketAddress address{.ip = {.bytes = {10, 0, 0, 1}}, .port = 0};
  return {{.index = 0,
           .name = "hosta",
           .machine = "one",
           .world_size = 3,
           .hosts = 2,
           .addresses = {{address, "eth0"}},
           .ranks = {{0, 100, 5000}, {1, 101, 5001}}},
          {.index = 1,
           .name = "hostb",
           .machine = "two",
           .world_size = 3,
           .hosts = 2,
           .addresses = {{address, "eth1"}},
           .ranks = {{2, 200, 6000}}}};
}

std::string verdict(std::vector<HostRecord> hosts) { return std::string(sort_and_check(hosts).message()); }

TEST(HostTable, IsReadAsItWasWritten) {
  Bytes bytes;
  Encoder out(bytes);
  encode(out, make_hosts());
  Decoder in(bytes);
  auto hosts = decode_hosts(in);
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(*hosts, make_hosts());
  EXPECT_EQ(rank_name((*hosts)[1], 0), "rank 2 (hostb, pid 200)");
  EXPECT_EQ(to_text(endpoints_of((*hosts)[0], 1).front()), "10.0.0.1:5001 (eth0)");
}

TEST(HostTable, BrokenBytesAreRefused) {
  Bytes good;
  Encoder out(good);
  encode(out, make_hosts());
  for (size_t length = 0; length < good.size(); length++) {
    Decoder in(ByteView(good).first(length));
    EXPECT_FALSE(decode_hosts(in).ok()) << length;
  }
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; i++) {
    Bytes bytes = good;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    Decoder in(bytes);
    auto hosts = decode_hosts(in);
    if (hosts.ok() && !hosts->empty()) (void)sort_and_check(*hosts).ok();
  }
}

TEST(HostTable, HostsAreSortedAndMayDiffer) {
  auto hosts = make_hosts();
  std::swap(hosts[0], hosts[1]);
  EXPECT_TRUE(sort_and_check(hosts).ok());
  EXPECT_EQ(hosts, make_hosts());
  EXPECT_FALSE(is_homogeneous(hosts));
}

TEST(HostTable, ContradictionsAreNamed) {
  auto hosts = make_hosts();
  hosts[1].world_size = 4;
  EXPECT_THAT(verdict(hosts), HasSubstr("hosta was told of 3 ranks on 2 hosts"));
  EXPECT_THAT(verdict(hosts), HasSubstr("hostb of 4 ranks on 2 hosts"));
  hosts = make_hosts();
  hosts[1].ranks[0].rank = 1;
  EXPECT_THAT(verdict(hosts), HasSubstr("two processes say they are rank 1: one on hosta and one on hostb (pid 200)"));
  hosts = make_hosts();
  hosts[1].ranks[0].rank = 3;
  EXPECT_THAT(verdict(hosts), HasSubstr("rank 3 (hostb, pid 200) is outside the world of 3 ranks"));
  hosts = make_hosts();
  hosts[0].ranks.pop_back();
  EXPECT_THAT(verdict(hosts), HasSubstr("the 2 hosts (hosta, hostb) together have no rank 1 of 3"));
}

TEST(HostTable, HostsOfOneMachineShareItsCores) {
  std::vector<HostRecord> hosts = make_hosts();
  EXPECT_EQ(ranks_on_machine(hosts, 0), 2);
  EXPECT_EQ(ranks_on_machine(hosts, 1), 1);
  hosts[1].machine = "one";
  EXPECT_EQ(ranks_on_machine(hosts, 0), 3);
  EXPECT_EQ(ranks_on_machine(hosts, 1), 3);
}

TEST(HostTable, HostsThatCannotTellTheirMachineAreAlone) {
  std::vector<HostRecord> hosts = make_hosts();
  for (HostRecord& host : hosts) host.machine.clear();
  EXPECT_EQ(ranks_on_machine(hosts, 0), 2);
  EXPECT_EQ(ranks_on_machine(hosts, 1), 1);
}

TEST(HostTable, TheMachineIsTheSameForAllItsProcesses) {
  std::string machine = read_machine();
  EXPECT_FALSE(machine.empty());
  EXPECT_EQ(read_machine(), machine);
}

}  // namespace
}  // namespace hvd
