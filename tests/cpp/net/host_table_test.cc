#include "net/host_table.h"

#include <gmock/gmock.h>

#include <random>

namespace hvd {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  auto written = make_hosts();
  written[0].ranks[1].cores = {3, 0, uint64_t{1} << 63};
  written[0].knobs = {{"HOROVOD_THIS", "1"}, {"HOROVOD_THAT", ""}};
  written[1].crowded = true;
  Bytes bytes;
  Encoder out(bytes);
  encode(out, written);
  Decoder in(bytes);
  auto hosts = decode_hosts(in);
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(*hosts, written);
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
    if (hosts.ok() && !hosts->empty()) (void)(sort_and_check(*hosts).ok() && agree(*hosts).ok());
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
  EXPECT_THAT(verdict(hosts), HasSubstr("hosta was started with 3 ranks on 2 hosts"));
  EXPECT_THAT(verdict(hosts), HasSubstr("hostb with 4 ranks on 2 hosts"));
  hosts = make_hosts();
  hosts[1].ranks[0].rank = 1;
  EXPECT_THAT(verdict(hosts), HasSubstr("two processes say they are rank 1: one on hosta and one on hostb (pid 200)"));
  hosts = make_hosts();
  hosts[1].ranks[0].rank = 3;
  EXPECT_THAT(verdict(hosts), HasSubstr("rank 3 (hostb, pid 200) is outside the world of 3 ranks"));
  hosts = make_hosts();
  hosts[0].ranks.pop_back();
  EXPECT_THAT(verdict(hosts), HasSubstr("none of the 2 hosts (hosta, hostb) has rank 1 of 3"));
}

std::vector<bool> crowded(std::vector<HostRecord> hosts) {
  EXPECT_TRUE(agree(hosts).ok());
  std::vector<bool> flags;
  for (const HostRecord& host : hosts) flags.push_back(host.crowded);
  return flags;
}

TEST(HostTable, HostsOfOneMachineShareItsCores) {
  std::vector<HostRecord> hosts = make_hosts();
  for (HostRecord& host : hosts) {
    for (HostRecord::Rank& rank : host.ranks) rank.cores = {0b11};
  }
  EXPECT_EQ(crowded(hosts), (std::vector{false, false}));
  hosts[1].machine = hosts[0].machine = "one";
  EXPECT_EQ(crowded(hosts), (std::vector{true, true}));
  hosts[1].ranks[0].cores = {0b100};  // a container with its own core
  EXPECT_EQ(crowded(hosts), (std::vector{false, false}));
}

TEST(HostTable, HostsThatCannotTellTheirMachineAreAlone) {
  std::vector<HostRecord> hosts = make_hosts();
  for (HostRecord& host : hosts) {
    host.machine.clear();
    for (HostRecord::Rank& rank : host.ranks) rank.cores = {0b1};
  }
  EXPECT_EQ(crowded(hosts), (std::vector{true, false}));
}

TEST(HostTable, HostsThatWouldExchangeDataDifferentlyAreNamed) {
  std::vector<HostRecord> hosts = make_hosts();
  hosts[0].knobs = {{"HOROVOD_THIS", "1"}, {"HOROVOD_THAT", "5"}};
  hosts[1].knobs = {{"HOROVOD_THIS", ""}, {"HOROVOD_THAT", "5"}};
  Status status = agree(hosts);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("HOROVOD_THIS is 1 on ranks 0, 1, unset on rank 2"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("HOROVOD_THAT")));
  hosts[1].knobs = hosts[0].knobs;
  ASSERT_TRUE(agree(hosts).ok());
  EXPECT_TRUE(hosts[0].knobs.empty());  // knobs that agree are not sent to all ranks
}

TEST(HostTable, TheMachineIsTheSameForAllItsProcesses) {
  std::string machine = read_machine();
  EXPECT_FALSE(machine.empty());
  EXPECT_EQ(read_machine(), machine);
}

}  // namespace
}  // namespace hvd
