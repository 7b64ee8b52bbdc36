#include "engine/process_set_table.h"

#include <cassert>

#include "collectives/host_collectives.h"
#include "collectives/placement.h"

namespace hvd {
namespace {

// Hints that choose between algorithms with the same result. Unset means our choice; a torus is also a hierarchy.
WorldSettings settings_from(const Config& config) {
  WorldSettings settings;
  settings.one_shot_limit = static_cast<size_t>(config.one_shot_limit.value_or(Tuning().one_shot_limit));
  settings.flat_allreduce = config.hierarchical_allreduce == false && config.torus_allreduce != true;
  settings.flat_allgather = config.hierarchical_allgather == false;
  return settings;
}

}  // namespace

ProcessSetTable::ProcessSetTable(const World& world, const Config& config, Transport& transport)
    : world_(world), transport_(transport), settings_(settings_from(config)), sets_(world.size) {}

Result<std::unique_ptr<ProcessSetTable>> ProcessSetTable::create(const World& world, const Config& config,
                                                                 Transport& transport) {
  std::unique_ptr<ProcessSetTable> table(new ProcessSetTable(world, config, transport));
  if (Status status = table->open(kWorldSet, *table->sets_.ranks(kWorldSet)); !status.ok()) return status;
  return table;
}

// All ranks have reached this point, but some may still be inside an earlier plan of a set whose memory will be reused;
// the barrier waits for them.
Status ProcessSetTable::change(const Plan& plan) {
  const Request& request = plan.first();
  collectives(kWorldSet).describe(request.name.c_str());
  if (Status status = collectives(kWorldSet).barrier(); !status.ok()) return status;
  if (removes_set(request.kind)) {
    close(request.process_set);
    return {};
  }
  int32_t id = -1;
  {
    std::lock_guard lock(mutex_);
    id = sets_.add(request.ranks);
  }
  assert(id == plan.result);
  Status status = open(id, request.ranks);
  if (!status.ok()) transport_.abort(status);
  return status;
}

// All ranks of a host open the same channels, even of sets without this rank, except for sets without members there.
Status ProcessSetTable::open(int32_t id, const std::vector<int32_t>& ranks) {
  std::vector<int32_t> locals = local_members(ranks);
  if (locals.empty()) return {};
  auto channel = transport_.channels().open(id, locals);
  if (!channel.ok()) return channel.status();
  if (*channel == nullptr) return {};
  connect(id, ranks, **channel);
  return {};
}

Status ProcessSetTable::open_pair(int32_t process_set) {
  if (!is_pair(process_set) || collectives_.contains(process_set)) return {};
  std::vector<int32_t> ranks = *members(process_set);
  auto channel = transport_.channels().open_pair(local_members(ranks));
  if (!channel.ok()) return channel.status();
  pair_channels_.push_back(std::move(*channel));
  connect(process_set, ranks, *pair_channels_.back());
  return {};
}

void ProcessSetTable::connect(int32_t id, const std::vector<int32_t>& ranks, Channel& channel) {
  if (static_cast<size_t>(channel.size()) == ranks.size()) {
    collectives_[id] = std::make_unique<HostCollectives>(channel, settings_.one_shot_limit);
  } else {
    collectives_[id] =
        std::make_unique<WorldCollectives>(transport_, channel, place(ranks, world_.host_of, world_.rank), settings_);
  }
}

void ProcessSetTable::close(int32_t id) {
  collectives_.erase(id);
  transport_.channels().close(id);
  std::lock_guard lock(mutex_);
  sets_.remove(id);
}

// The members on this host, with their ranks in the transport, in the order of their positions in the set.
std::vector<int32_t> ProcessSetTable::local_members(const std::vector<int32_t>& ranks) const {
  if (world_.host_of.empty()) return ranks;
  std::vector<int32_t> locals;
  for (int32_t rank : ranks) {
    for (int32_t local = 0; local < transport_.size(); local++) {
      if (transport_.world_rank(local) == rank) locals.push_back(local);
    }
  }
  return locals;
}

void ProcessSetTable::apply(const Tuning& tuning) {
  settings_.one_shot_limit = static_cast<size_t>(tuning.one_shot_limit);
  for (auto& [id, collectives] : collectives_) collectives->set_one_shot_limit(settings_.one_shot_limit);
}

// ---- look-ups ----

ProcessSetTable::Membership ProcessSetTable::membership(int32_t process_set) const {
  if (process_set == kWorldSet) return {.size = world_.size, .position = world_.rank};
  std::lock_guard lock(mutex_);
  const std::vector<int32_t>* ranks = sets_.ranks(process_set);
  if (ranks == nullptr) return {};
  return {.size = static_cast<int32_t>(ranks->size()),
          .position = sets_.position(process_set, Rank{world_.rank}).value_or(-1),
          .serial = sets_.serial(process_set)};
}

std::optional<int32_t> ProcessSetTable::position(int32_t process_set, int32_t rank) const {
  std::lock_guard lock(mutex_);
  return sets_.position(process_set, Rank{rank});
}

std::optional<std::vector<int32_t>> ProcessSetTable::members(int32_t process_set) const {
  std::lock_guard lock(mutex_);
  const std::vector<int32_t>* ranks = sets_.ranks(process_set);
  if (ranks == nullptr) return std::nullopt;
  return *ranks;
}

std::vector<int32_t> ProcessSetTable::ids() const {
  std::lock_guard lock(mutex_);
  return sets_.ids();
}

}  // namespace hvd
