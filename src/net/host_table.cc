#include "net/host_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/joined.h"

namespace hvd {

std::string rank_name(const HostRecord& host, size_t local_rank) {
  const HostRecord::Rank& rank = host.ranks[local_rank];
  return fmt::format("rank {} ({}, pid {})", rank.rank, host.name, rank.pid);
}

Origin leader_of(const HostRecord& host) {
  return {.rank = host.ranks.front().rank, .host = host.name, .pid = host.ranks.front().pid};
}

std::vector<Endpoint> endpoints_of(const HostRecord& host, size_t local_rank) {
  std::vector<Endpoint> endpoints = host.addresses;
  for (Endpoint& endpoint : endpoints) endpoint.address.port = host.ranks[local_rank].port;
  return endpoints;
}

void encode(Encoder& out, const std::vector<HostRecord>& hosts) {
  out.varint(hosts.size());
  for (const HostRecord& host : hosts) {
    out.signed_varint(host.index);
    out.text(host.name);
    out.text(host.machine);
    out.signed_varint(host.world_size);
    out.signed_varint(host.hosts);
    Bytes addresses;
    Encoder addresses_out(addresses);
    encode(addresses_out, host.addresses);
    out.varint(addresses.size());
    out.bytes(addresses);
    out.varint(host.ranks.size());
    for (const HostRecord::Rank& rank : host.ranks) {
      out.signed_varint(rank.rank);
      out.signed_varint(rank.pid);
      out.varint(rank.port);
      out.varint(rank.cores.size());
      for (uint64_t word : rank.cores) out.varint(word);
    }
    encode(out, host.knobs);
    out.u8(host.crowded ? 1 : 0);
  }
}

Result<std::vector<HostRecord>> decode_hosts(Decoder& in) {
  const Status bad(Code::unknown, "a list of hosts cannot be read");
  auto number = [&] {
    int64_t value = in.signed_varint();
    return value >= INT32_MIN && value <= INT32_MAX ? static_cast<int32_t>(value) : int32_t{in.fail()};
  };
  std::vector<HostRecord> hosts;
  for (size_t left = in.count(9); left > 0 && in.ok(); left--) {
    HostRecord& host = hosts.emplace_back();
    host.index = number();
    host.name = in.text();
    host.machine = in.text();
    host.world_size = number();
    host.hosts = number();
    auto addresses = decode_endpoints(in.bytes(in.varint()));
    if (!in.ok() || !addresses.ok()) return bad;
    host.addresses = std::move(*addresses);
    for (size_t ranks = in.count(4); ranks > 0 && in.ok(); ranks--) {
      int32_t rank = number(), pid = number();
      uint64_t port = in.varint();
      if (port > UINT16_MAX) return bad;
      host.ranks.push_back({.rank = rank, .pid = pid, .port = static_cast<uint16_t>(port), .cores = {}});
      for (size_t words = in.count(); words > 0; words--) host.ranks.back().cores.push_back(in.varint());
    }
    host.knobs = decode_shared_knobs(in);
    host.crowded = in.u8() != 0;
    if (host.ranks.empty()) return bad;
  }
  if (!in.ok()) return bad;
  return hosts;
}

Status sort_and_check(std::vector<HostRecord>& hosts) {
  std::sort(hosts.begin(), hosts.end(), [](const HostRecord& a, const HostRecord& b) { return a.index < b.index; });
  const HostRecord& first = hosts.front();
  auto bad = [](std::string text) { return Status(Code::invalid_argument, std::move(text)); };
  for (const HostRecord& host : hosts) {
    if (host.world_size != first.world_size || host.hosts != first.hosts) {
      return bad(
          fmt::format("hosts disagree about the world: {} was started with {} ranks on {} hosts (HOROVOD_SIZE, "
                      "HOROVOD_CROSS_SIZE), "
                      "{} with {} ranks on {} hosts",
                      first.name, first.world_size, first.hosts, host.name, host.world_size, host.hosts));
    }
  }
  std::vector<const HostRecord*> owner(static_cast<size_t>(std::max(first.world_size, 0)));
  for (const HostRecord& host : hosts) {
    for (size_t local = 0; local < host.ranks.size(); local++) {
      int32_t rank = host.ranks[local].rank;
      if (rank < 0 || rank >= first.world_size) {
        return bad(fmt::format("{} is outside the world of {} ranks", rank_name(host, local), first.world_size));
      }
      const HostRecord*& place = owner[static_cast<size_t>(rank)];
      if (place != nullptr) {
        return bad(fmt::format("two processes say they are rank {}: one on {} and one on {} (pid {})", rank,
                               place->name, host.name, host.ranks[local].pid));
      }
      place = &host;
    }
  }
  std::vector<size_t> missing;
  for (size_t rank = 0; rank < owner.size(); rank++) {
    if (owner[rank] == nullptr) missing.push_back(rank);
  }
  if (!missing.empty()) {
    return bad(fmt::format(
        "none of the {} hosts ({}) has rank {} of {}; check HOROVOD_RANK and HOROVOD_LOCAL_SIZE", hosts.size(),
        [&] {
          std::vector<std::string> names;
          names.reserve(hosts.size());
          for (const HostRecord& host : hosts) names.push_back(host.name);
          return joined(names, ", ");
        }(),
        joined(missing, ", "), first.world_size));
  }
  return {};
}

bool is_homogeneous(const std::vector<HostRecord>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const HostRecord& host) { return host.ranks.size() == hosts.front().ranks.size(); });
}

// Changes with every boot, and is the same in all containers of the machine.
std::string read_machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

Status agree(std::vector<HostRecord>& hosts) {
  std::vector<KnobsOf> knobs;
  std::map<std::string, std::vector<CoreMask>> machines;  // the core masks of all their ranks
  auto machine_of = [](const HostRecord& host) {
    return host.machine.empty() ? fmt::format("host {}", host.index) : host.machine;
  };
  for (const HostRecord& host : hosts) {
    KnobsOf& own = knobs.emplace_back(KnobsOf{.ranks = {}, .knobs = host.knobs});
    for (const HostRecord::Rank& rank : host.ranks) {
      own.ranks.push_back(rank.rank);
      machines[machine_of(host)].push_back(rank.cores);
    }
  }
  if (Status status = compare_knobs(knobs, Scope::in_world); !status.ok()) return status;
  std::map<std::string, bool> crowded;
  for (const auto& [machine, masks] : machines) crowded[machine] = must_share_cores(masks);
  for (HostRecord& host : hosts) {
    host.crowded = crowded[machine_of(host)];
    host.knobs.clear();
    for (HostRecord::Rank& rank : host.ranks) rank.cores.clear();
  }
  return {};
}

}  // namespace hvd
