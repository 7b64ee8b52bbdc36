// The process sets of one rank's world: their members, and the collectives of those this rank is in. Sets change only
// through plans, so every rank has the same table at the same point in the order of plans. Thread rule: the thread that
// drives; the look-ups are for any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "collectives/collectives.h"
#include "collectives/world_collectives.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "model/world.h"
#include "transport/transport.h"

namespace hvd {

class ProcessSetTable {
 public:
  static Result<std::unique_ptr<ProcessSetTable>> create(const World& world, const Config& config,
                                                         Transport& transport);

  // Executes a plan that adds or removes a set. Not ok: the world has failed.
  Status change(const Plan& plan);
  void apply(const Tuning& tuning);
  // Whether this rank has collectives for the set, that is, whether it is a member.
  bool is_member(int32_t process_set) const {
    return is_pair(process_set) ? contains(process_set, world_.rank) : collectives_.contains(process_set);
  }
  Collectives& collectives(int32_t process_set) { return *collectives_.at(process_set); }
  // Opens the channel of a pair with this rank before its first use. Does nothing for other sets.
  Status open_pair(int32_t process_set);

  // ---- look-ups: any thread ----
  struct Membership {
    int32_t size = 0;       // 0: no such set
    int32_t position = -1;  // -1: this rank is not in it
    uint64_t serial = 0;    // see ProcessSets::serial()
  };
  Membership membership(int32_t process_set) const;
  std::optional<int32_t> position(int32_t process_set, int32_t rank) const;
  bool contains(int32_t process_set, int32_t rank) const { return position(process_set, rank).has_value(); }
  std::optional<std::vector<int32_t>> members(int32_t process_set) const;
  std::vector<int32_t> ids() const;

 private:
  ProcessSetTable(const World& world, const Config& config, Transport& transport);

  Status open(int32_t id, const std::vector<int32_t>& ranks);
  void connect(int32_t id, const std::vector<int32_t>& ranks, Channel& channel);
  void close(int32_t id);
  std::vector<int32_t> local_members(const std::vector<int32_t>& ranks) const;

  const World world_;
  Transport& transport_;
  WorldSettings settings_;
  std::vector<std::unique_ptr<Channel>> pair_channels_;  // outlive their collectives
  std::map<int32_t, std::unique_ptr<Collectives>> collectives_;

  mutable std::mutex mutex_;  // guards the members below
  ProcessSets sets_;
};

}  // namespace hvd
