#include "collectives/world_collectives.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "base/round_up.h"

namespace hvd {
namespace {

constexpr std::align_val_t kPage{4096};

Team team_of(std::vector<int32_t> ranks, int32_t rank) {
  size_t self = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  return {.ranks = std::move(ranks), .self = self};
}

}  // namespace

WorldCollectives::WorldCollectives(Transport& transport, Channel& channel, Placement placement, WorldSettings settings)
    : at_(std::move(placement)),
      settings_(settings),
      host_(channel, settings.one_shot_limit),
      links_(transport),
      rounds_{{.range = {}, .cross = {links_, settings.cross}}, {.range = {}, .cross = {links_, settings.cross}}} {
  assert(at_.hosts.size() > 1 && settings_.round % kLine == 0);
  settings_.round = std::max(settings_.round, most_handled() * kLine);
  scratch_.reset(static_cast<std::byte*>(::operator new(4 * settings_.round, kPage)));
  int32_t rank = at_.ranks[static_cast<size_t>(at_.position)];
  if (at_.seat.place < at_.lanes) lane_ = team_of(at_.lane(at_.seat.place), rank);
  if (settings_.flat_allreduce) {
    if (auto order = alternating_order(at_)) {
      flat_ = team_of(std::move(*order), rank);
      flat_->only_ring = true;
    }
  }
}

void WorldCollectives::FreePages::operator()(std::byte* memory) const { ::operator delete(memory, kPage); }

void WorldCollectives::describe(const char* what) {
  host_.describe(what);
  links_.describe(what);
}

size_t WorldCollectives::lanes_for(size_t bytes) const {
  return std::clamp(bytes / settings_.lane_bytes, size_t{1}, at_.lanes);
}

WorldCollectives::Range WorldCollectives::share(Range whole, size_t index, size_t count) {
  size_t each = round_up((whole.bytes() + count - 1) / count, kLine);
  return {std::min(whole.end, whole.begin + index * each), std::min(whole.end, whole.begin + (index + 1) * each)};
}

std::vector<Segments>& WorldCollectives::lists(std::vector<Segments>& kept, size_t count) {
  kept.resize(count);
  for (Segments& list : kept) list.clear();
  return kept;
}

size_t WorldCollectives::most_handled() const {
  size_t most = 0;
  for (size_t host = 0; host < at_.hosts.size(); host++) {
    size_t count = 1, members = at_.hosts[host].size();
    for (size_t other = 0; other < at_.hosts.size(); other++) {
      if (other != host) count += (at_.hosts[other].size() + members - 1) / members;
    }
    most = std::max(most, count);
  }
  return most;
}

void WorldCollectives::send(Traffic& traffic, int32_t rank, const Segments& data, Range range) {
  data.visit(range.begin, range.end, [&](const std::byte* piece, size_t bytes, size_t) {
    traffic.sent.push_back(links_.send(rank, {piece, bytes}));
  });
}

void WorldCollectives::receive(Traffic& traffic, int32_t rank, const Segments& data, Range range) {
  data.visit(range.begin, range.end, [&](std::byte* piece, size_t bytes, size_t) {
    traffic.arrived.push_back(links_.receive(rank, {piece, bytes}));
  });
}

Status WorldCollectives::wait_all(std::vector<Mesh::Ticket>& tickets) {
  for (const Mesh::Ticket& ticket : tickets) {
    if (Status status = links_.wait(ticket); !status.ok()) return status;
  }
  tickets.clear();
  return {};
}

// ---- allreduce ----

Status WorldCollectives::allreduce(const Segments& in, const Segments& out, const Reduction& reduction) {
  if (in.bytes() == 0) return {};
  return run_rounds({in, out, reduction, flat_ ? 1 : lanes_for(in.bytes())});
}

Status WorldCollectives::run_rounds(const Allreduce& call) {
  size_t total = call.in.bytes(), most = call.lanes * settings_.round;
  size_t count = (total + most - 1) / most;
  size_t each = round_up((total + count - 1) / count, call.lanes * kLine);
  count = (total + each - 1) / each;
  for (size_t k = 0; k < count + 1; k++) {
    Round &now = rounds_[k % 2], &before = rounds_[1 - k % 2];
    if (k < count) {
      now.range = {k * each, std::min(total, (k + 1) * each)};
      if (Status status = reduce_in_host(call, now, work(k)); !status.ok()) return status;
    }
    if (k > 0 && drives(call)) before.cross.advance();
    // The bytes of a round follow those of the previous one on the same streams.
    bool early = k < count && (k == 0 || before.cross.is_queued());
    if (early) start_round(call, now, incoming(k));
    if (k > 0 && drives(call)) {
      if (Status status = before.cross.finish(); !status.ok()) return status;
    }
    if (!early && k < count) start_round(call, now, incoming(k));
    if (k > 0) {
      if (Status status = spread_in_host(call, before); !status.ok()) return status;
    }
  }
  return {};
}

WorldCollectives::Range WorldCollectives::shard_of(const Allreduce& call, const Round& round) const {
  return flat_ ? round.range : share(round.range, at_.seat.place, call.lanes);
}

// Reduces this rank's shard inside the host, into round.work.
Status WorldCollectives::reduce_in_host(const Allreduce& call, Round& round, std::byte* spare) {
  Range mine = drives(call) ? shard_of(call, round) : Range{};
  round.work = call.out.contiguous(mine.begin, mine.end);
  round.in_place = round.work != nullptr;
  if (!round.in_place) round.work = spare;
  const Reduction& reduction = call.reduction;
  if (flat_ || alone()) {
    call.in.visit(mine.begin, mine.end, [&](const std::byte* data, size_t bytes, size_t at) {
      std::byte* to = round.work + at;
      if (reduction.prescale != 1.0)
        scale(reduction.dtype, to, data, bytes / size_of(reduction.dtype), reduction.prescale);
      else if (to != data)
        hvd::copy(to, data, bytes);
    });
    return {};
  }
  std::vector<Segments>& parts = lists(parts_, at_.locals().size());
  for (size_t lane = 0; lane < call.lanes; lane++) {
    Range range = share(round.range, lane, call.lanes);
    call.in.append_to(parts[lane], range.begin, range.end);
  }
  mine_.clear();
  call.in.append_cut(mine_, mine.begin, mine.end, round.work);
  return host_.reducescatter(parts, mine_,
                             {.dtype = reduction.dtype, .op = reduction.op, .prescale = reduction.prescale});
}

void WorldCollectives::start_round(const Allreduce& call, Round& round, std::byte* place) {
  if (!drives(call)) return;
  Range mine = shard_of(call, round);
  round.cross.start(flat_ ? *flat_ : lane_, round.work, mine.bytes(), place, call.reduction);
}

// Sends the shards of the lanes to all ranks of the host.
Status WorldCollectives::spread_in_host(const Allreduce& call, Round& round) {
  Range mine = drives(call) ? shard_of(call, round) : Range{};
  if (flat_ || alone()) {
    if (!round.in_place) call.out.write(mine.begin, mine.end, round.work);
    return {};
  }
  std::vector<Segments>& theirs = lists(theirs_, at_.locals().size());
  for (size_t lane = 0; lane < call.lanes; lane++) {
    Range range = share(round.range, lane, call.lanes);
    call.out.append_to(theirs[lane], range.begin, range.end);
  }
  mine_.clear();
  if (mine.bytes() > 0) mine_.add(round.work, mine.bytes());
  return host_.allgather(mine_, theirs);
}

// ---- barrier ----

// First all ranks of the host arrive; then the hosts exchange a byte in steps of doubling distance; then the ranks of
// the host may continue.
Status WorldCollectives::barrier() {
  if (Status status = host_.barrier(); !status.ok()) return status;
  if (at_.seat.place == 0) {
    size_t hosts = lane_.size(), self = lane_.self;
    for (size_t distance = 1; distance < hosts; distance *= 2) {
      std::byte token{}, theirs{};
      Mesh::Ticket sent = links_.send(lane_.ranks[(self + distance) % hosts], {&token, 1});
      Mesh::Ticket arrived = links_.receive(lane_.ranks[(self + hosts - distance) % hosts], {&theirs, 1});
      if (Status status = links_.wait(sent); !status.ok()) return status;
      if (Status status = links_.wait(arrived); !status.ok()) return status;
    }
  }
  return host_.barrier();
}

}  // namespace hvd
