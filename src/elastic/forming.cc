// When the next generation forms, and with whom.
#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/joined.h"
#include "elastic/driver.h"
#include "elastic/placement.h"

namespace hvd::elastic {
namespace {

bool is_ready(const Worker& worker) { return worker.is(WorkerState::ready); }

std::string list_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> texts;
  texts.reserve(hosts.size());
  for (const HostSlots& host : hosts) texts.push_back(fmt::format("{}:{}", host.name, host.slots));
  return joined(texts, ", ");
}

}  // namespace

void Driver::form() { generation_ == Generation{0} ? form_first() : form_next(); }

// All np are waited for; after the start timeout min_np will do, provided that np slots are there: fewer slots are
// what the user has to mend, fewer workers may be one broken host.
void Driver::form_first() {
  bool is_complete = hosts_.count_slots() >= settings_.np;
  if (!is_complete)
    complete_since_.reset();
  else if (!complete_since_)
    complete_since_ = now_;

  std::vector<const Worker*> ready = choose_members();
  int count = static_cast<int>(ready.size());
  bool is_starting = std::any_of(workers_.begin(), workers_.end(),
                                 [](const Worker& each) { return each.is(WorkerState::starting) && each.is_usable(); });
  if (count >= settings_.np && !is_starting) return assign(std::move(ready));
  if (complete_since_ && is_due(after(*complete_since_, settings_.start_timeout)) && count >= settings_.min_np)
    return assign(std::move(ready));
  // Too few slots, and workers that fail again and again, are waited for as at any other time. Workers that have been
  // started have the time of a start, which begins when the slots are there.
  bool is_coming = is_complete && is_starting;
  if (is_coming && waiting_since_ && *waiting_since_ < *complete_since_) waiting_since_.reset();
  wait(what_is_missing(settings_.np), is_coming ? time_to_come() : settings_.elastic_timeout);
}

// The elastic timeout may be short: it is about changes of a job that runs. A first start takes as long as imports do.
Duration Driver::time_to_come() const {
  if (generation_ != Generation{0}) return settings_.elastic_timeout;
  return std::max(settings_.elastic_timeout, settings_.start_timeout);
}

void Driver::form_next() {
  if (waits_for_members()) return;
  if (!is_reset_left()) {
    fail(fmt::format("the reset limit of {} is reached, and another generation is needed: {}", *settings_.reset_limit,
                     joined(reasons_, "; ")));
    return;
  }
  std::vector<const Worker*> members = choose_members();
  if (!members.empty()) return assign(std::move(members));
  wait(what_is_missing(settings_.min_np));
}

// Those that have not asked yet are on their way: their world is broken as well, or they were notified.
bool Driver::waits_for_members() {
  std::vector<std::string> missing;
  for (const Worker& worker : workers_) {
    if (is_member(worker) && worker.is(WorkerState::busy)) missing.push_back(name_of(worker));
  }
  if (missing.empty()) return false;
  if (regroup_since_ && is_due(after(*regroup_since_, settings_.regroup_grace))) return false;
  waiting_for_ = joined(missing, ", ") + " to ask for the next place";
  return true;
}

// Empty when no generation can form. Workers without a slot fill up what is missing to the minimum; and when no
// other worker has the training state, one of them, or else one that is about to leave, is taken along to hand it over.
// Before the first generation no worker has it, and any may begin.
std::vector<const Worker*> Driver::choose_members() const {
  std::vector<const Worker*> chosen, spare, going;
  for (const Worker& worker : workers_) {
    if (is_ready(worker)) (worker.going ? going : worker.listed ? chosen : spare).push_back(&worker);
  }
  if (generation_ == Generation{0}) return chosen;
  auto is_senior = [](const Worker* a, const Worker* b) {  // in a newer generation, and there of a lower rank
    return std::tuple(b->generation, a->rank) < std::tuple(a->generation, b->rank);
  };
  for (auto* workers : {&chosen, &spare, &going}) std::stable_sort(workers->begin(), workers->end(), is_senior);
  bool needs_carrier =
      std::all_of(chosen.begin(), chosen.end(), [](const Worker* each) { return each->is_newcomer(); });
  // A worker that leaves is kept only while no other one has the state.
  if (needs_carrier && spare.empty() && !chosen.empty()) spare = std::move(going);
  size_t needed = static_cast<size_t>(settings_.min_np);
  size_t filling = std::max(needed - std::min(chosen.size(), needed), size_t{needs_carrier});
  if (spare.size() < filling) return {};
  chosen.insert(chosen.begin(), spare.begin(), spare.begin() + static_cast<ptrdiff_t>(filling));
  if (chosen.size() > static_cast<size_t>(limit())) chosen.resize(static_cast<size_t>(limit()));
  return chosen;
}

void Driver::assign(std::vector<const Worker*> members) {
  AssignGeneration table = place(members, hosts_.hosts());
  Generation before = std::exchange(generation_, Generation{static_cast<uint64_t>(generation_) + 1});
  table.generation = generation_;
  say(LogLevel::info,
      fmt::format("generation {} has {} ranks on {}{}{}", static_cast<uint64_t>(generation_), table.places.size(),
                  list_hosts(table.hosts), reasons_.empty() ? "" : ": ", joined(reasons_, "; ")));
  members_.clear();
  for (const Place& each : table.places) {
    Worker& worker = *find(each.id);
    worker.state = WorkerState::busy;
    worker.since = now_;
    worker.generation = generation_;
    worker.rank = each.rank;
    worker.announced = false;
    members_.push_back(each.id);
  }
  act(std::move(table));
  for (Worker& worker : workers_) {
    if (is_member(worker) || worker.is_ending()) continue;
    worker.announced = false;
    if (is_ready(worker) && !worker.listed) leave(worker, "its slot is gone, and the others go on without it");
    if (worker.is(WorkerState::busy) && worker.generation == before) {
      say(LogLevel::warning, name_of(worker) + " has not come back in time: the others go on, it may join later");
      worker.since = now_;
    }
  }
  reasons_.clear();
  failures_.clear();
  regroup_since_.reset();
}

void Driver::wait(std::string what, Duration limit) {
  waits_ = true;
  waiting_for_ = std::move(what);
  if (!waiting_since_) {
    waiting_since_ = now_;
    say(LogLevel::info, fmt::format("waiting for {}, at most {:.0f} s", waiting_for_, seconds_of(limit)));
  }
  if (!is_due(after(*waiting_since_, limit))) return;
  std::string last = last_failure_.empty() ? "" : "; the last failure: " + last_failure_;
  fail(fmt::format("waited {:.0f} s for {}{}", seconds_of(now_ - *waiting_since_), waiting_for_, last));
}

std::string Driver::what_is_missing(int needed) const {
  int ready = 0, starting = 0;
  for (const Worker& worker : workers_) {
    if (!worker.is_usable()) continue;
    if (worker.is(WorkerState::starting))
      starting++;
    else
      ready++;
  }
  int slots = hosts_.count_slots();
  std::string listed =
      slots == 0 ? "no host is listed" : fmt::format("{} slots are listed ({})", slots, list_hosts(hosts_.hosts()));
  if (slots < needed) return fmt::format("{} slots: {}", needed, listed);
  std::vector<std::string> resting;
  for (const HostSlots& host : hosts_.hosts()) {
    TimePoint until = hosts_.rests_until(host.name);
    if (until > now_) resting.push_back(fmt::format("host {} for {:.1f} s more", host.name, seconds_of(until - now_)));
  }
  return fmt::format("{} workers: {} are there, {} are starting; {}{}{}", needed, ready, starting, listed,
                     resting.empty() ? "" : "; resting after a failure: ", joined(resting, ", "));
}

}  // namespace hvd::elastic
