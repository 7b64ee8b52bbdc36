#include "negotiation/aggregator.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "negotiation/down_reader.h"
#include "negotiation/intake.h"
#include "negotiation/signature.h"
#include "negotiation/subtree_messages.h"

namespace hvd {

class Aggregator::State final : public IntakeListener, public DownListener {
 public:
  State(int32_t world_size, const std::vector<std::vector<int32_t>>& children, AggregatorSettings settings)
      : settings_(settings),
        gathering_(world_size, Subtrees(children)),
        intake_(world_size, gathering_),
        reader_(world_size, gathering_.table()) {}

  Status receive(Rank rank, ByteView message, TimePoint now);
  Status follow(ByteView message, TimePoint now);
  bool flush(TimePoint now, Bytes& out);
  TimePoint next_deadline() const;

 private:
  Status on_cached(Arrival&& arrival, uint64_t position, TimePoint now) override;
  Status on_full(Arrival&& arrival, uint64_t position, TimePoint now) override;
  Status on_join(std::span<const int32_t> ranks, const AgreedRequest& request, TimePoint now) override;
  void on_shutdown(Rank rank, std::string_view reason, const Origin& origin) override;
  void on_acknowledged(uint64_t, uint64_t) override {}  // flush() checks instead
  bool on_ended(const Ended& ended) override;
  void on_evicted(const KnownId& known, CacheId id) override;
  void on_shutdown_notice() override { stopped_ = true; }

  Status submit(Entry& entry, Arrival&& arrival, uint64_t position, TimePoint now, bool at_once = false);
  std::vector<Entry*> held();
  void conclude(Entry& entry, TimePoint now);
  void pass_on(Entry& entry, TimePoint now);
  bool is_of_passed_group(const Entry& entry) const;
  void close(Entry& entry);
  void fail(Entry& entry, const Request& request, uint64_t message);
  bool change_sets(const Entry& own, const Ended& ended);

  void write_whole(const Entry& entry, TimePoint now);
  void write_some(const Entry& entry, const Arrival& arrival, bool precedes_removal, uint64_t knows, TimePoint now);
  void write_whole_ids();
  void acknowledge(Encoder& encoder);
  uint64_t must_know(const Entry& entry) const;
  RequestTable& table() { return gathering_.table(); }

  AggregatorSettings settings_;
  Gathering gathering_;
  Intake intake_;
  DownReader reader_;
  uint64_t acknowledged_ = 0;        // acknowledged to the node above
  std::deque<uint64_t> remembered_;  // down messages with evictions and errors that are not acknowledged
  std::vector<CacheId> whole_ids_;   // complete and not written yet; not in a group, so their order is free
  NameMap<std::set<const Entry*>> passed_groups_;  // groups with members that were passed on, and these members
  Bytes outgoing_;                                 // written before the next acknowledgement
  TimePoint now_;                                  // while a message is processed
  bool stopped_ = false;                           // the shutdown notice has arrived
};

Status Aggregator::State::receive(Rank rank, ByteView message, TimePoint now) {
  return stopped_ ? Status() : intake_.receive(rank, message, now, *this);
}

Status Aggregator::State::on_cached(Arrival&& arrival, uint64_t position, TimePoint now) {
  const KnownId* known = reader_.find(arrival.id);
  if (known == nullptr) {
    return {Code::unknown, fmt::format("rank {} sent the unknown cache id {}", index_of(arrival.rank), arrival.id)};
  }
  arrival.request = known->request;
  // An evicted id is forgotten once all ranks have acknowledged the eviction, so it must not wait.
  return submit(*known->entry, std::move(arrival), position, now, known->evicted_in != 0);
}

Status Aggregator::State::on_full(Arrival&& arrival, uint64_t position, TimePoint now) {
  const Request& request = *arrival.request;
  Entry& entry = table().find_or_add({gathering_set(request), request.name});
  Status status = submit(entry, std::move(arrival), position, now);
  table().release(entry);
  return status;
}

Status Aggregator::State::submit(Entry& entry, Arrival&& arrival, uint64_t position, TimePoint now, bool at_once) {
  int32_t set = entry.key.process_set;
  bool has_failed = gathering_.precedes_failure(entry, position);
  bool is_removed = gathering_.precedes_removal(set, position);
  if (has_failed) gathering_.pay(entry, arrival);
  if (has_failed || is_removed) {
    write_some(entry, arrival, is_removed, position > acknowledged_ ? position : 0, now);
    return {};
  }
  if (Status status = gathering_.check(entry, arrival); !status.ok()) return status;
  if (entry.state == Entry::State::idle) {
    table().open(entry, gathering_.members_of(entry, *arrival.request), arrival.since);
  } else {
    table().backdate(entry, arrival.since);
  }
  at_once |= arrival.some != nullptr;                  // a node below has passed it on
  at_once |= arrival.request->kind == Kind::transfer;  // a probe may wait for it
  at_once |= gathering_.pay(entry, arrival);
  gathering_.record(entry, std::move(arrival));
  if (at_once || entry.at_once || is_of_passed_group(entry)) {
    pass_on(entry, now);
  } else if (gathering_.is_complete(entry)) {
    conclude(entry, now);
  }
  return {};
}

Status Aggregator::State::on_join(std::span<const int32_t> ranks, const AgreedRequest& request, TimePoint now) {
  if (request->process_set != kWorldSet) return broken(Rank{ranks.front()}, "join is for the world only");
  auto has_any = [&](const Entry& entry) {
    auto has = [&](int32_t rank) { return entry.submitted.contains(Rank{rank}); };
    return entry.key.process_set == kWorldSet && std::any_of(ranks.begin(), ranks.end(), has);
  };
  for (Entry* entry : held()) {
    if (has_any(*entry)) pass_on(*entry, now);
  }
  for (int32_t rank : ranks) {
    if (!gathering_.joins().join(Rank{rank})) return broken(Rank{rank}, "it joined twice");
  }
  write_whole_ids();
  Encoder encoder(outgoing_);
  write_join(encoder, *request, ranks);
  for (Entry* entry : held()) {
    if (!entry->at_once && gathering_.is_complete(*entry)) conclude(*entry, now);
  }
  return {};
}

std::vector<Entry*> Aggregator::State::held() {
  std::vector<Entry*> entries;
  for (Entry* entry = table().oldest(); entry != nullptr; entry = entry->newer) entries.push_back(entry);
  return entries;
}

void Aggregator::State::on_shutdown(Rank rank, std::string_view reason, const Origin& origin) {
  write_whole_ids();
  Encoder encoder(outgoing_);
  write_subtree_shutdown(encoder, index_of(rank), reason, origin);
}

// All members below have submitted it. It stays open until the root has decided, so that no rank submits it twice.
void Aggregator::State::conclude(Entry& entry, TimePoint now) {
  const Arrival& first = entry.arrivals.front();
  auto is_like_first = [&](const Arrival& other) {
    return other.id == first.id && (other.request == first.request || same_signature(*other.request, *first.request));
  };
  if (!std::all_of(entry.arrivals.begin(), entry.arrivals.end(), is_like_first)) return pass_on(entry, now);
  if (manages_sets(first.request->kind)) write_whole_ids();  // they precede the removal of a set that is left
  write_whole(entry, now);
  entry.passed_on = entry.arrivals.size();
  entry.at_once = true;
  table().unlist(entry);
}

void Aggregator::State::pass_on(Entry& entry, TimePoint now) {
  entry.at_once = true;
  table().unlist(entry);
  bool has_new_group = false;
  for (; entry.passed_on < entry.arrivals.size(); entry.passed_on++) {
    const Arrival& arrival = entry.arrivals[entry.passed_on];
    write_some(entry, arrival, false, must_know(entry), now);
    if (arrival.request->group.empty()) continue;
    NameKey group({entry.key.process_set, arrival.request->group});
    has_new_group |= passed_groups_[group].insert(&entry).second;
  }
  if (!has_new_group) return;
  for (Entry* other : held()) {
    if (is_of_passed_group(*other)) pass_on(*other, now);
  }
}

bool Aggregator::State::is_of_passed_group(const Entry& entry) const {
  if (passed_groups_.empty()) return false;
  auto is_passed = [&](const Arrival& arrival) {
    return passed_groups_.contains(NameView{entry.key.process_set, arrival.request->group});
  };
  return std::any_of(entry.arrivals.begin(), entry.arrivals.end(), is_passed);
}

void Aggregator::State::close(Entry& entry) {
  for (auto group = passed_groups_.begin(); group != passed_groups_.end();) {
    group->second.erase(&entry);
    group = group->second.empty() ? passed_groups_.erase(group) : std::next(group);
  }
  table().reset(entry);
  table().release(entry);
}

// The last message that this was submitted after, unless it is already acknowledged: the node above must not treat the
// entry as submitted before it. 0: none.
uint64_t Aggregator::State::must_know(const Entry& entry) const {
  int32_t set = entry.key.process_set;
  uint64_t message = std::max(entry.failed_in, set == kWorldSet ? 0 : gathering_.removed_in(set));
  return message > acknowledged_ ? message : 0;
}

void Aggregator::State::write_whole(const Entry& entry, TimePoint now) {
  auto by_rank = [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; };
  const Arrival& lowest = *std::min_element(entry.arrivals.begin(), entry.arrivals.end(), by_rank);
  uint64_t knows = must_know(entry);
  Duration age = now - entry.since;
  bool is_old = age > settings_.hold / 16;
  if (lowest.id != 0 && knows == 0 && !is_old && lowest.request->group.empty()) {
    whole_ids_.push_back(lowest.id);
    return;
  }
  Encoder encoder(outgoing_);
  if (knows != 0) write_knows(encoder, knows);
  if (is_old) write_age(encoder, age);
  if (lowest.id != 0) return write_ids(encoder, {&lowest.id, 1});
  std::vector<std::pair<int32_t, Device>> places;
  if (lowest.request->device != kHost) {
    for (const Arrival& arrival : entry.arrivals) {
      for (int32_t rank : gathering_.ranks_of(arrival, entry.key.process_set, false)) {
        places.emplace_back(rank, arrival.device_of(Rank{rank}));
      }
    }
  }
  std::sort(places.begin(), places.end());
  std::vector<Device> devices;
  devices.reserve(places.size());
  for (const auto& [rank, device] : places) devices.push_back(device);
  hvd::write_whole(encoder, *lowest.request, devices);
}

void Aggregator::State::write_some(const Entry& entry, const Arrival& arrival, bool precedes_removal, uint64_t knows,
                                   TimePoint now) {
  std::vector<int32_t> ranks = gathering_.ranks_of(arrival, entry.key.process_set, precedes_removal);
  if (ranks.empty()) return;
  Encoder encoder(outgoing_);
  if (knows != 0) write_knows(encoder, knows);
  if (Duration age = now - arrival.since; age >= kAgeUnit) write_age(encoder, age);
  if (arrival.id != 0) return hvd::write_some(encoder, arrival.id, ranks);
  std::vector<Device> devices;
  if (arrival.request->device != kHost) {
    for (int32_t rank : ranks) devices.push_back(arrival.device_of(Rank{rank}));
  }
  hvd::write_some(encoder, *arrival.request, ranks, devices);
}

void Aggregator::State::write_whole_ids() {
  if (whole_ids_.empty()) return;
  Encoder encoder(outgoing_);
  std::sort(whole_ids_.begin(), whole_ids_.end());
  write_ids(encoder, whole_ids_);
  whole_ids_.clear();
}

Status Aggregator::State::follow(ByteView message, TimePoint now) {
  now_ = now;
  write_whole_ids();
  return reader_.read(message, intake_.acknowledgements().next_number(), *this);
}

bool Aggregator::State::on_ended(const Ended& ended) {
  if (!ended.is_ok) remembered_.push_back(ended.message);
  if (ended.request.kind == Kind::join) {
    gathering_.joins().start_over();
    table().forgive(kWorldSet);
    return true;
  }
  Entry* entry = ended.entry;
  if (entry == nullptr) entry = &table().find_or_add({gathering_set(ended.request), ended.request.name});
  bool is_possible = true;
  if (!ended.is_ok) {
    fail(*entry, ended.request, ended.message);
  } else if (manages_sets(ended.request.kind)) {
    is_possible = change_sets(*entry, ended);
  }
  close(*entry);
  return is_possible;
}

// The ranks that have submitted it have their answer; the others will get the same one from the root.
void Aggregator::State::fail(Entry& entry, const Request& request, uint64_t message) {
  if (entry.is_open()) pass_on(entry, now_);
  bool excuses_joined = entry.key.process_set == kWorldSet && !manages_sets(request.kind);
  const Members* set = gathering_.members(entry.key.process_set);
  const Members future = request.kind == Kind::form_process_set ? Members(gathering_.tree(), request.ranks) : Members();
  if (request.kind == Kind::form_process_set) set = &future;
  if (set != nullptr) {
    for (int32_t rank : set->ranks) {
      bool is_excused = excuses_joined && gathering_.joined().contains(Rank{rank});
      if (!entry.submitted.contains(Rank{rank}) && !is_excused) entry.owing.insert(Rank{rank});
    }
  }
  table().failed(entry, message);
}

// `own` is the entry of the change, which the caller closes.
bool Aggregator::State::change_sets(const Entry& own, const Ended& ended) {
  const Request& request = ended.request;
  if (adds_set(request.kind)) {
    bool is_possible = !request.ranks.empty() && !gathering_.sets().find(request.ranks);
    return is_possible && gathering_.add_set(request.ranks) == ended.result;
  }
  int32_t set = request.process_set;
  if (set == kWorldSet || gathering_.members(set) == nullptr) return false;
  for (Entry* entry : table().open_in(set)) {
    if (entry == &own) continue;
    pass_on(*entry, now_);
    close(*entry);
  }
  gathering_.remove_set(set);
  gathering_.removal_sent(set, ended.message);
  return true;
}

void Aggregator::State::on_evicted(const KnownId& known, CacheId id) {
  remembered_.push_back(known.evicted_in);
  Entry& entry = *known.entry;
  auto has_it = [&](const Arrival& arrival) { return arrival.id == id; };
  if (entry.is_open() && std::any_of(entry.arrivals.begin(), entry.arrivals.end(), has_it)) pass_on(entry, now_);
}

bool Aggregator::State::flush(TimePoint now, Bytes& out) {
  if (stopped_) return false;
  while (table().oldest() != nullptr && after(table().oldest()->since, settings_.hold) <= now) {
    pass_on(*table().oldest(), now);
  }
  bool speaks_up = false;
  if (remembered_.size() >= kMaxRemembered) {
    speaks_up = remembered_[kMaxRemembered - 1] <= intake_.acknowledgements().processed_by_all();
  }
  if (outgoing_.empty() && whole_ids_.empty() && !speaks_up) return false;
  Encoder encoder(outgoing_);
  acknowledge(encoder);
  write_whole_ids();
  out.insert(out.end(), outgoing_.begin(), outgoing_.end());
  outgoing_.clear();
  return true;
}

void Aggregator::State::acknowledge(Encoder& encoder) {
  uint64_t processed = intake_.acknowledgements().processed_by_all();
  if (processed == acknowledged_) return;
  write_subtree_acknowledge(encoder, processed - acknowledged_);
  acknowledged_ = processed;
  reader_.forget_evicted(processed);
  table().forget_failures(processed);
  while (!remembered_.empty() && remembered_.front() <= processed) remembered_.pop_front();
}

TimePoint Aggregator::State::next_deadline() const {
  if (stopped_) return kNever;
  if (!outgoing_.empty() || !whole_ids_.empty()) return TimePoint::min();
  const Entry* oldest = gathering_.table().oldest();
  return oldest == nullptr ? kNever : after(oldest->since, settings_.hold);
}

Duration hold_time(const CoordinatorSettings& root) {
  Duration shortest = Duration::max();
  if (root.stall_check && root.stall_warning > Duration{}) shortest = root.stall_warning;
  if (root.collective_timeout > Duration{}) shortest = std::min(shortest, root.collective_timeout);
  return shortest == Duration::max() ? shortest : shortest / 10;
}

Aggregator::Aggregator(int32_t world_size, const std::vector<std::vector<int32_t>>& children,
                       AggregatorSettings settings)
    : state_(std::make_unique<State>(world_size, children, settings)) {}
Aggregator::~Aggregator() = default;

Status Aggregator::receive(Rank rank, ByteView message, TimePoint now) { return state_->receive(rank, message, now); }
Status Aggregator::follow(ByteView message, TimePoint now) { return state_->follow(message, now); }
bool Aggregator::flush(TimePoint now, Bytes& out) { return state_->flush(now, out); }
TimePoint Aggregator::next_deadline() const { return state_->next_deadline(); }

}  // namespace hvd
