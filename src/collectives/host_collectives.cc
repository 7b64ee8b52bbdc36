#include "collectives/host_collectives.h"

#include <algorithm>

#include "base/round_up.h"

namespace hvd {
namespace {

constexpr size_t kSmallestChunk = 16 << 10;
// A medium tensor is split into this many chunks, so that the phases overlap. If ranks share cores nothing overlaps,
// and each chunk costs context switches.
constexpr size_t kChunksOfMedium = 4;
// In a step every rank reads every slot; with many ranks the chunked algorithm, which divides the work, is faster
// earlier.
constexpr size_t kRanksOfFullOneShot = 4;

}  // namespace

HostCollectives::HostCollectives(Channel& channel, size_t one_shot_limit)
    : channel_(channel), sources_(static_cast<size_t>(channel.size())) {
  set_one_shot_limit(one_shot_limit);
}

void HostCollectives::set_one_shot_limit(size_t bytes) {
  size_t crowd = std::max<size_t>(1, static_cast<size_t>(size()) / kRanksOfFullOneShot);
  one_shot_bytes_ = std::min(bytes / crowd, channel_.largest_slot());
}

Status HostCollectives::await_all() {
  for (int32_t p = 0; p < size(); p++) {
    if (p == self()) continue;
    if (Status status = channel_.await(p); !status.ok()) return status;
  }
  return {};
}

HostCollectives::Range HostCollectives::part_of(size_t bytes, int32_t p) const {
  size_t each = round_up(bytes / static_cast<size_t>(size()), kLine);
  size_t begin = std::min(bytes, each * static_cast<size_t>(p));
  return {begin, p == size() - 1 ? bytes : std::min(bytes, begin + each)};
}

size_t HostCollectives::chunk_for(size_t bytes) const {
  size_t cut = round_up(channel_.is_crowded() ? bytes : bytes / kChunksOfMedium, kLine);
  return std::clamp(cut, std::min(kSmallestChunk, channel_.shape().chunk), channel_.shape().chunk);
}

size_t HostCollectives::share_room() const {
  return std::max(channel_.shape().chunk / static_cast<size_t>(size()) / kLine, size_t{1}) * kLine;
}

void HostCollectives::stage(const Segments& from, size_t begin, size_t end, std::byte* staging,
                            const Reduction* scaling) {
  if (scaling == nullptr && store_.is_probe_due(end - begin)) {
    size_t probe = std::min(end - begin, StoreChoice::kProbeBytes);
    TimePoint start = Clock::now();
    from.read(begin, begin + probe, staging);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the stores must have reached the cache
    store_.learn(probe, Clock::now() - start);
    begin += probe;
    staging += probe;
  }
  StoreHint store = end - begin < 512 ? StoreHint::cached : store_.current();
  if (scaling == nullptr) return from.read(begin, end, staging, store);
  from.visit(begin, end, [&](const std::byte* data, size_t bytes, size_t at) {
    scale(scaling->dtype, staging + at, data, bytes / size_of(scaling->dtype), scaling->prescale, store);
  });
}

void HostCollectives::combine(const Segments& in, const Segments& out, size_t begin, size_t end,
                              const Reduction& reduction, std::byte* copy) {
  size_t width = size_of(reduction.dtype);
  std::vector<const std::byte*>& bases = sources_;
  const std::byte* sources[kMaxLocalRanks];
  size_t ranks = bases.size(), own = static_cast<size_t>(self());
  in.visit_with(out, begin, end, [&](const std::byte* data, std::byte* result, size_t bytes, size_t at) {
    for (size_t p = 0; p < ranks; p++) sources[p] = bases[p] + at;
    sources[own] = data;
    if (reduction.prescale != 1.0) {
      scale(reduction.dtype, result, data, bytes / width, reduction.prescale);
      sources[own] = result;
    }
    hvd::reduce(reduction.dtype, reduction.op, result, {sources, ranks}, bytes / width, reduction.factor,
                copy == nullptr ? nullptr : copy + at, store_.current());
  });
}

// ---- allreduce ----

Status HostCollectives::allreduce(const Segments& in, const Segments& out, const Reduction& reduction) {
  return reduce_to(kEverybody, in, out, reduction);
}

Status HostCollectives::reduce(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction) {
  return reduce_to(root, in, out, reduction);
}

Status HostCollectives::reduce_to(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction) {
  if (fits_one_shot(in.bytes())) return allreduce_one_shot(root, in, out, reduction);
  return allreduce_chunked(root, in, out, reduction);
}

Status HostCollectives::allreduce_one_shot(int32_t root, const Segments& in, const Segments& out,
                                           const Reduction& reduction) {
  channel_.begin_step(in.bytes());
  stage(in, 0, in.bytes(), channel_.slot(), reduction.prescale == 1.0 ? nullptr : &reduction);
  channel_.post();
  if (Status status = await_all(); !status.ok()) return status;
  if (!receives(root)) return {};
  for (int32_t p = 0; p < size(); p++) sources_[static_cast<size_t>(p)] = channel_.slot_of(p);
  combine(in, out, 0, in.bytes(), reduction, nullptr);
  return {};
}

// Per chunk: a rank copies the parts that others reduce into staging, reduces its own part (result to its tensor and to
// staging), and copies the other parts out. The three phases of a chunk are one turn apart, so that no rank waits for
// data that is still being written. With a root, only the root copies parts out.
Status HostCollectives::allreduce_chunked(int32_t root, const Segments& in, const Segments& out,
                                          const Reduction& reduction) {
  size_t total = in.bytes(), chunk = chunk_for(total);
  uint64_t first = channel_.first_chunk(), count = (total + chunk - 1) / chunk;
  channel_.cut_chunks(chunk);
  const Reduction* scaling = reduction.prescale == 1.0 ? nullptr : &reduction;
  Segments own_in, own_out;  // of a rank that does not receive: its part of a chunk, reduced in staging memory
  auto length = [&](uint64_t k) { return std::min(chunk, total - k * chunk); };

  auto offer = [&](uint64_t k) -> Status {
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    std::byte* staging = channel_.in(self(), first + k);
    for (int32_t p = 0; p < size(); p++) {
      Range part = part_of(length(k), p);
      if (p != self()) stage(in, k * chunk + part.begin, k * chunk + part.end, staging + part.begin, scaling);
    }
    channel_.post_in(first + k);
    return {};
  };
  auto reduce_own = [&](uint64_t k) -> Status {
    Range part = part_of(length(k), self());
    for (int32_t p = 0; p < size(); p++) {
      if (p == self()) continue;
      if (Status status = channel_.await_in(p, first + k); !status.ok()) return status;
      sources_[static_cast<size_t>(p)] = channel_.in(p, first + k) + part.begin;
    }
    std::byte* staging = channel_.out(self(), first + k) + part.begin;
    if (receives(root)) {
      combine(in, out, k * chunk + part.begin, k * chunk + part.end, reduction, staging);
    } else {
      own_in.clear();
      own_out.clear();
      in.append_to(own_in, k * chunk + part.begin, k * chunk + part.end);
      in.append_cut(own_out, k * chunk + part.begin, k * chunk + part.end, staging);
      combine(own_in, own_out, 0, own_in.bytes(), reduction, nullptr);
    }
    channel_.post_out(first + k);
    return {};
  };
  // Only ranks that receive the result read `out`. Its places are still reused safely: all ranks wait for the
  // receiver's `in` of a later chunk, which it posts after it has read the earlier `out`.
  auto collect = [&](uint64_t k) -> Status {
    if (!receives(root)) return {};
    for (int32_t d = 1; d < size(); d++) {
      int32_t p = (self() + d) % size();
      Range part = part_of(length(k), p);
      if (Status status = channel_.await_out(p, first + k); !status.ok()) return status;
      out.write(k * chunk + part.begin, k * chunk + part.end, channel_.out(p, first + k) + part.begin);
    }
    return {};
  };
  for (uint64_t turn = 0; turn < count + 2; turn++) {
    Status status;
    if (turn < count) status = offer(turn);
    if (status.ok() && turn >= 1 && turn - 1 < count) status = reduce_own(turn - 1);
    if (status.ok() && turn >= 2) status = collect(turn - 2);
    if (!status.ok()) return status;
  }
  channel_.finish_chunks(count);
  return {};
}

// ---- reducescatter ----

Status HostCollectives::reducescatter(std::span<const Segments> parts, const Segments& out,
                                      const Reduction& reduction) {
  size_t largest = 0;
  for (const Segments& part : parts) largest = std::max(largest, round_up(part.bytes(), kLine));
  if (fits_one_shot(largest * parts.size())) return reducescatter_one_shot(parts, out, reduction, largest);
  return reducescatter_chunked(parts, out, reduction, largest);
}

Status HostCollectives::reducescatter_one_shot(std::span<const Segments> parts, const Segments& out,
                                               const Reduction& reduction, size_t largest) {
  const Reduction* scaling = reduction.prescale == 1.0 ? nullptr : &reduction;
  channel_.begin_step(largest * parts.size());
  for (size_t p = 0; p < parts.size(); p++) {
    if (p != static_cast<size_t>(self())) stage(parts[p], 0, parts[p].bytes(), channel_.slot() + p * largest, scaling);
  }
  channel_.post();
  if (Status status = await_all(); !status.ok()) return status;
  size_t own = static_cast<size_t>(self());
  for (size_t p = 0; p < parts.size(); p++) sources_[p] = channel_.slot_of(static_cast<int32_t>(p)) + own * largest;
  combine(parts[own], out, 0, out.bytes(), reduction, nullptr);
  return {};
}

Status HostCollectives::reducescatter_chunked(std::span<const Segments> parts, const Segments& out,
                                              const Reduction& reduction, size_t largest) {
  const Reduction* scaling = reduction.prescale == 1.0 ? nullptr : &reduction;
  size_t room = share_room(), own = static_cast<size_t>(self());
  channel_.cut_chunks(room * parts.size());
  uint64_t first = channel_.first_chunk(), count = (largest + room - 1) / room;
  auto clip = [&](const Segments& part, uint64_t k) -> Range {
    return {std::min(part.bytes(), k * room), std::min(part.bytes(), (k + 1) * room)};
  };
  auto offer = [&](uint64_t k) -> Status {
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    for (size_t p = 0; p < parts.size(); p++) {
      Range range = clip(parts[p], k);
      if (p != own) stage(parts[p], range.begin, range.end, channel_.in(self(), first + k) + p * room, scaling);
    }
    channel_.post_in(first + k);
    return {};
  };
  auto reduce_own = [&](uint64_t k) -> Status {
    for (int32_t p = 0; p < size(); p++) {
      if (p == self()) continue;
      if (Status status = channel_.await_in(p, first + k); !status.ok()) return status;
      sources_[static_cast<size_t>(p)] = channel_.in(p, first + k) + own * room;
    }
    Range range = clip(out, k);
    combine(parts[own], out, range.begin, range.end, reduction, nullptr);
    channel_.post_out(first + k);
    return {};
  };
  for (uint64_t turn = 0; turn < count + 1; turn++) {
    Status status;
    if (turn < count) status = offer(turn);
    if (status.ok() && turn >= 1) status = reduce_own(turn - 1);
    if (!status.ok()) return status;
  }
  channel_.finish_chunks(count);
  return {};
}

}  // namespace hvd
