#include "observe/writer.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

namespace hvd::observe {
namespace {

constexpr int kFirstBucketBits = 10;
constexpr uint64_t kOperationsPerAdjustment = 4096;

uint64_t unsigned_of(int64_t value) { return value < 0 ? 0 : static_cast<uint64_t>(value); }

size_t set_index(int32_t set) { return std::min(static_cast<size_t>(std::max(set, 0)), kSets - 1); }

void write_name(Entry<Word>& entry, std::string_view name) {
  entry.name_length.store(name.size(), std::memory_order_relaxed);
  if (name.size() > kNameBytes) name.remove_prefix(name.size() - kNameBytes);
  size_t words = (name.size() + 7) / 8;
  for (size_t i = 0; i < words; i++) {
    uint64_t word = 0;
    std::memcpy(&word, name.data() + i * 8, std::min<size_t>(8, name.size() - i * 8));
    entry.name[i].store(word, std::memory_order_relaxed);
  }
}

}  // namespace

size_t bucket_of(uint64_t nanoseconds) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(nanoseconds >> kFirstBucketBits)), kBuckets - 1);
}

Writer::Writer(Memory memory) : memory_(std::move(memory)) {
  memory_->pid.store(static_cast<uint64_t>(::getpid()), std::memory_order_relaxed);
}

void Writer::add(Histogram<Word>& histogram, int64_t nanoseconds) {
  uint64_t value = unsigned_of(nanoseconds);
  add(histogram.count);
  add(histogram.sum, value);
  add(histogram.buckets[bucket_of(value)]);
}

// ---- the process ----

void Writer::enter_world(const Place& place) {
  Shared& m = *memory_;
  auto put = [](Word& word, int64_t value) { word.store(static_cast<uint64_t>(value), std::memory_order_relaxed); };
  using std::chrono::nanoseconds;
  int64_t wall = std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  put(m.pid, ::getpid());
  put(m.rank, place.rank);
  put(m.world_size, place.world_size);
  put(m.local_rank, place.local_rank);
  put(m.cross_rank, place.cross_rank);
  put(m.generation, static_cast<int64_t>(place.generation));
  put(m.wall_offset, wall - now());
  put(m.began, now());
  put(m.waiting_since, 0);
  for (Link<Word>& link : m.links) put(link.peer, 0);
  stopwatch_.adjust();
  add(m.worlds);
  set_state(State::running);
}

void Writer::set_signals(int python, int native) {
  if (python >= 0) memory_->python_signal.store(static_cast<uint64_t>(python), std::memory_order_relaxed);
  if (native >= 0) memory_->native_signal.store(static_cast<uint64_t>(native), std::memory_order_relaxed);
}

// ---- operations ----

Record Writer::on_submit(const Operation& operation, size_t in_flight) {
  Shared& m = *memory_;
  const Request& request = operation.request;
  if (m.submitted.load(std::memory_order_relaxed) % kOperationsPerAdjustment == 0) stopwatch_.adjust();
  Record record{.number = m.submitted.load(std::memory_order_relaxed) + 1, .submitted = now()};
  Entry<Word>& entry = m.ring[record.number % kRing];
  entry.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.submitted.store(unsigned_of(record.submitted), std::memory_order_relaxed);
  entry.agreed.store(0, std::memory_order_relaxed);
  entry.done.store(0, std::memory_order_relaxed);
  entry.bytes.store(operation.input.bytes(), std::memory_order_relaxed);
  entry.facts.store(pack({.kind = static_cast<uint8_t>(request.kind), .dtype = static_cast<uint8_t>(request.dtype)}),
                    std::memory_order_relaxed);
  entry.process_set.store(static_cast<uint64_t>(request.process_set), std::memory_order_relaxed);
  write_name(entry, request.name);
  entry.number.store(record.number, std::memory_order_release);
  m.submitted.store(record.number, std::memory_order_relaxed);
  if (in_flight > m.deepest.load(std::memory_order_relaxed)) m.deepest.store(in_flight, std::memory_order_relaxed);
  return record;
}

Writer::Agreed Writer::on_plan(size_t tensors) {
  Shared& m = *memory_;
  add(m.plans);
  if (tensors > m.largest_plan.load(std::memory_order_relaxed))
    m.largest_plan.store(tensors, std::memory_order_relaxed);
  return {.when = now(), .tensors = static_cast<uint32_t>(tensors)};
}

// An entry that has been taken for a later operation is left alone.
void Writer::on_agreed(const Agreed& agreed, Record& record, const Operation& operation) {
  record.agreed = agreed.when;
  add(memory_->fused_tensors);
  add(memory_->fused_bytes, operation.input.bytes());
  Entry<Word>& entry = memory_->ring[record.number % kRing];
  if (record.number == 0 || entry.number.load(std::memory_order_relaxed) != record.number) return;
  entry.agreed.store(unsigned_of(record.agreed), std::memory_order_relaxed);
  entry.facts.store(entry.facts.load(std::memory_order_relaxed) | uint64_t{agreed.tensors} << 32,
                    std::memory_order_relaxed);
}

void Writer::on_done(const Record& record, const Operation& operation, bool is_ok, int64_t when) {
  Shared& m = *memory_;
  const Request& request = operation.request;
  uint64_t bytes = operation.input.bytes();
  size_t set = set_index(request.process_set);
  for (Total<Word>* total :
       {&m.kinds[static_cast<size_t>(request.kind)], &m.dtypes[static_cast<size_t>(request.dtype)], &m.sets[set]}) {
    add(total->count);
    add(total->bytes, bytes);
    if (!is_ok) add(total->failed);
  }
  add(m.finished);
  m.last_done.store(unsigned_of(when), std::memory_order_relaxed);
  if (is_ok) {
    int64_t agreed = record.agreed != 0 ? record.agreed : when;
    add(m.agreement, agreed - record.submitted);
    add(m.set_agreement[set], unsigned_of(agreed - record.submitted));
    add(m.execution, when - agreed);
  }
  Entry<Word>& entry = m.ring[record.number % kRing];
  if (record.number == 0 || entry.number.load(std::memory_order_relaxed) != record.number) return;
  entry.done.store(unsigned_of(when), std::memory_order_relaxed);
  Outcome outcome = is_ok ? Outcome::done : Outcome::failed;
  entry.facts.store(entry.facts.load(std::memory_order_relaxed) | static_cast<uint64_t>(outcome) << 16,
                    std::memory_order_relaxed);
}

// ---- the driving thread ----

void Writer::on_stall(const std::vector<int32_t>& missing) {
  Shared& m = *memory_;
  uint64_t words[kMissingWords] = {};
  for (int32_t rank : missing) {
    size_t index = static_cast<size_t>(rank);
    if (rank >= 0 && index / 64 < kMissingWords) words[index / 64] |= uint64_t{1} << index % 64;
  }
  for (size_t i = 0; i < kMissingWords; i++) m.missing[i].store(words[i], std::memory_order_relaxed);
  m.stall_time.store(unsigned_of(now()), std::memory_order_relaxed);
  m.stalls.store(m.stalls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// ---- waiting threads ----

int64_t Writer::begin_wait() {
  int64_t since = now();
  memory_->waiting_since.store(unsigned_of(since), std::memory_order_relaxed);
  return since;
}

void Writer::end_wait(int64_t since) {
  Shared& m = *memory_;
  m.waiting_since.store(0, std::memory_order_relaxed);
  m.waits.fetch_add(1, std::memory_order_relaxed);
  m.wait_time.fetch_add(unsigned_of(now() - since), std::memory_order_relaxed);
}

// ---- the watch ----

void Writer::on_beat() {
  add(memory_->beats);
  memory_->last_beat.store(unsigned_of(now()), std::memory_order_relaxed);
}

void Writer::set_links(const std::vector<LinkFacts>& links) {
  Link<Word>* last = nullptr;
  LinkFacts sum;
  for (size_t i = 0; i < links.size(); i++) {
    Link<Word>& link = memory_->links[std::min(i, kLinks - 1)];
    bool is_same = &link == last;
    sum = is_same ? LinkFacts{sum.peer,
                              sum.sent + links[i].sent,
                              sum.received + links[i].received,
                              sum.retransmits + links[i].retransmits,
                              std::max(sum.round_trip, links[i].round_trip),
                              sum.connections + links[i].connections}
                  : links[i];
    last = &link;
    link.sent.store(sum.sent, std::memory_order_relaxed);
    link.received.store(sum.received, std::memory_order_relaxed);
    link.retransmits.store(sum.retransmits, std::memory_order_relaxed);
    link.round_trip.store(sum.round_trip, std::memory_order_relaxed);
    link.connections.store(sum.connections, std::memory_order_relaxed);
    link.peer.store(static_cast<uint64_t>(sum.peer + 1), std::memory_order_relaxed);
  }
}

}  // namespace hvd::observe
