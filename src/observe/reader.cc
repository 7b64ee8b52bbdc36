#include "observe/reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/dtype.h"
#include "model/request.h"

namespace hvd::observe {
namespace {

using nlohmann::json;

constexpr double kNanosecond = 1e-9;
static_assert(kKinds == static_cast<size_t>(kLastKind) + 1 && kDTypes == static_cast<size_t>(kLastDType) + 1);

double seconds_in(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * kNanosecond; }

json total_json(const Total<uint64_t>& total) {
  return {{"count", total.count}, {"bytes", total.bytes}, {"failed", total.failed}};
}

// Upper ends of buckets in seconds, and how many took no longer: as Prometheus counts.
json histogram_json(const Histogram<uint64_t>& histogram) {
  json buckets = json::array();
  uint64_t so_far = 0;
  for (size_t i = 0; i + 1 < kBuckets; i++) {
    so_far += histogram.buckets[i];
    buckets.push_back({std::ldexp(1024e-9, static_cast<int>(i)), so_far});
  }
  so_far += histogram.buckets[kBuckets - 1];  // not `count`, which was copied a moment earlier and may be less
  return {{"count", so_far}, {"seconds", seconds_in(histogram.sum)}, {"buckets", buckets}};
}

json links_json(const Copy& c) {
  json links = json::object();
  for (const Link<uint64_t>& link : c.links) {
    if (link.peer == 0) continue;
    links[std::to_string(link.peer - 1)] = {{"sent_bytes", link.sent},
                                            {"received_bytes", link.received},
                                            {"retransmits", link.retransmits},
                                            {"round_trip_seconds", static_cast<double>(link.round_trip) * 1e-6},
                                            {"connections", link.connections}};
  }
  return links;
}

json missing_json(const Copy& c) {
  json ranks = json::array();
  for (size_t i = 0; i < kMissingWords; i++)
    for (size_t bit = 0; bit < 64; bit++)
      if ((c.missing[i] >> bit & 1) != 0) ranks.push_back(i * 64 + bit);
  return ranks;
}

bool read_entry(const Entry<Word>& entry, Remembered& into) {
  uint64_t number = entry.number.load(std::memory_order_acquire);
  if (number == 0) return false;
  auto get = [](const Word& word) { return word.load(std::memory_order_relaxed); };
  into.number = number;
  into.submitted = static_cast<int64_t>(get(entry.submitted));
  into.agreed = static_cast<int64_t>(get(entry.agreed));
  into.done = static_cast<int64_t>(get(entry.done));
  into.bytes = get(entry.bytes);
  into.process_set = static_cast<int64_t>(get(entry.process_set));
  into.facts = unpack_facts(get(entry.facts));
  uint64_t length = get(entry.name_length);
  std::array<char, kNameBytes> name{};
  for (size_t i = 0; i < kNameWords; i++) {
    uint64_t word = get(entry.name[i]);
    std::memcpy(name.data() + i * 8, &word, 8);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.number.load(std::memory_order_relaxed) != number) return false;
  into.name.assign(name.data(), std::min<uint64_t>(length, kNameBytes));
  if (length > kNameBytes) into.name.insert(0, "...");
  return true;
}

}  // namespace

void copy_counters(const Shared& from, Copy& to) {
  constexpr size_t kWords = offsetof(Copy, ring) / sizeof(uint64_t);
  const Word* source = &from.magic;
  auto* target = reinterpret_cast<uint64_t*>(&to);
  for (size_t i = 0; i < kWords; i++) target[i] = source[i].load(std::memory_order_relaxed);
}

std::vector<Remembered> read_ring(const Shared& from, size_t most) {
  std::vector<Remembered> all;
  Remembered one;
  for (const Entry<Word>& entry : from.ring)
    if (read_entry(entry, one)) all.push_back(one);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(most));
  return all;
}

std::string text_of(State state) {
  switch (state) {
    case State::none: return "not initialized";
    case State::forming: return "forming";
    case State::running: return "running";
    case State::failed: return "failed";
    case State::left: return "left";
  }
  return "unknown";
}

json metrics_of(const Copy& c) {
  json operations = json::object(), dtypes = json::object(), sets = json::object();
  for (size_t i = 0; i < kKinds; i++)
    if (c.kinds[i].count > 0) operations[std::string(name_of(static_cast<Kind>(i)))] = total_json(c.kinds[i]);
  for (size_t i = 0; i < kDTypes; i++)
    if (c.dtypes[i].count > 0) dtypes[std::string(name_of(static_cast<DType>(i)))] = total_json(c.dtypes[i]);
  for (size_t i = 0; i < kSets; i++) {
    if (c.sets[i].count == 0) continue;
    json& set = sets[std::to_string(i)] = total_json(c.sets[i]);
    set["agreement_seconds"] = seconds_in(c.set_agreement[i]);
  }
  return {
      {"state", text_of(static_cast<State>(c.state))},
      {"rank", c.rank},
      {"size", c.world_size},
      {"local_rank", c.local_rank},
      {"cross_rank", c.cross_rank},
      {"pid", c.pid},
      {"generation", c.generation},
      {"worlds", c.worlds},
      {"operations", operations},
      {"dtypes", dtypes},
      {"process_sets", sets},
      {"submitted", c.submitted},
      {"finished", c.finished},
      {"queue_depth", c.submitted >= c.finished ? c.submitted - c.finished : 0},
      {"queue_depth_max", c.deepest},
      {"agreement", histogram_json(c.agreement)},
      {"execution", histogram_json(c.execution)},
      {"plans", c.plans},
      {"plan_tensors", c.fused_tensors},
      {"plan_tensors_max", c.largest_plan},
      {"plan_bytes", c.fused_bytes},
      {"carried", c.carried},
      {"cache_hits", c.cache_hits},
      {"cache_misses", c.cache_misses},
      {"waits", c.waits},
      {"wait_seconds", seconds_in(c.wait_time)},
      {"heartbeats", c.beats},
      {"commits", c.commits},
      {"recovered_failures", c.recovered},
      {"stalls", c.stalls},
      {"stalled_on", missing_json(c)},
      {"links", links_json(c)},
      {"resident_bytes", resident_bytes(static_cast<int64_t>(c.pid))},
  };
}

std::string metrics_text(const Shared& from) {
  auto copy = std::make_unique<Copy>();
  copy_counters(from, *copy);
  return metrics_of(*copy).dump();
}

json operation_json(const Remembered& operation, int64_t wall_offset) {
  auto wall = [&](int64_t steady) -> json {
    if (steady == 0) return nullptr;
    return static_cast<double>(steady + wall_offset) * kNanosecond;
  };
  const Facts& facts = operation.facts;
  bool is_known = facts.kind < kKinds && facts.dtype < kDTypes && facts.outcome <= kLastOutcome;
  constexpr const char* kOutcomes[] = {"pending", "done", "failed"};
  return {{"number", operation.number},
          {"name", operation.name},
          {"kind", is_known ? std::string(name_of(static_cast<Kind>(facts.kind))) : "unknown"},
          {"dtype", is_known ? std::string(name_of(static_cast<DType>(facts.dtype))) : "unknown"},
          {"bytes", operation.bytes},
          {"process_set", operation.process_set},
          {"fused", facts.fused},
          {"submitted", wall(operation.submitted)},
          {"agreed", wall(operation.agreed)},
          {"done", wall(operation.done)},
          {"outcome", is_known ? kOutcomes[static_cast<size_t>(facts.outcome)] : "unknown"}};
}

int64_t resident_bytes(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace hvd::observe
