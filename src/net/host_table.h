// The hosts of a world, their ranks and their addresses. Every host's leader writes a record; the root of the tree of
// hosts combines and checks them, and every rank gets all of them. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "model/core_masks.h"
#include "model/shared_knobs.h"
#include "net/address.h"

namespace hvd {

struct HostRecord {
  struct Rank {
    int32_t rank = 0;  // of the world
    int32_t pid = 0;
    uint16_t port = 0;  // where it listens
    CoreMask cores;     // cores that it may use; until agree()

    bool operator==(const Rank&) const = default;
  };
  int32_t index = 0;  // of this host
  std::string name;
  std::string machine;                // read_machine(): hosts that are containers of one machine share its cores
  int32_t world_size = 0, hosts = 0;  // according to this host
  std::vector<Endpoint> addresses;    // of the host, in order of preference; the ports are unused
  std::vector<Rank> ranks;            // by local rank; the first is the leader
  std::vector<SharedKnob> knobs;      // that must be the same in the world; until agree()
  bool crowded = false;               // its ranks, or those of its machine, must share cores; from agree() on

  bool operator==(const HostRecord&) const = default;
};

Origin leader_of(const HostRecord& host);                          // its rank, host and pid; the kind is not set yet
std::string rank_name(const HostRecord& host, size_t local_rank);  // "rank 3 (hostb, pid 4711)"
std::vector<Endpoint> endpoints_of(const HostRecord& host, size_t local_rank);

void encode(Encoder& out, const std::vector<HostRecord>& hosts);
Result<std::vector<HostRecord>> decode_hosts(Decoder& in);

// Sorts the records by host. Not ok: they do not form one world; the message names the conflicting ones.
Status sort_and_check(std::vector<HostRecord>& hosts);
// Settles what the hosts must agree on, once they form one world: compares their knobs, and finds hosts whose ranks
// must share cores. Then drops the knobs and cores, so the table that goes to every rank stays small.
Status agree(std::vector<HostRecord>& hosts);
bool is_homogeneous(const std::vector<HostRecord>& hosts);  // the same number of ranks on every host

std::string read_machine();  // identifies the machine that this process runs on; empty: unknown

}  // namespace hvd
