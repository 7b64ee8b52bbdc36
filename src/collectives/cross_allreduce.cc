#include "collectives/cross_allreduce.h"

#include <algorithm>
#include <bit>

#include "base/round_up.h"

namespace hvd {
namespace {

constexpr size_t kSmallestSegment = 64 << 10;
constexpr size_t kSegmentsOfBlock = 4;  // lets reduction and network overlap within a block of medium size

}  // namespace

size_t CrossAllreduce::segment_of(size_t bytes) const {
  size_t cut = round_up(bytes / kSegmentsOfBlock, kLine);
  return std::clamp(cut, std::min(kSmallestSegment, settings_.segment), settings_.segment);
}

void CrossAllreduce::reduce_into(std::byte* data, const std::byte* first, const std::byte* second, size_t bytes,
                                 bool is_last) {
  const std::byte* sources[] = {first, second};
  reduce(reduction_.dtype, reduction_.op, data, sources, bytes / size_of(reduction_.dtype),
         is_last ? reduction_.factor : 1.0);
}

void CrossAllreduce::start(const Team& team, std::byte* data, size_t bytes, std::byte* incoming,
                           const Reduction& reduction) {
  team_ = &team;
  data_ = data;
  bytes_ = bytes;
  incoming_ = incoming;
  reduction_ = reduction;
  items_.clear();
  next_ = forwards_ = 0;
  last_sent_ = {};
  doubling_ = team.size() > 2 && !team.only_ring && bytes <= settings_.doubling_limit;
  if (doubling_) return;
  if (team.size() == 2)
    start_exchange();
  else
    start_ring();
  links_.progress();
}

void CrossAllreduce::advance() {
  if (doubling_) return;
  links_.progress();
  while (next_ < items_.size() && links_.is_done(items_[next_].arrived) && links_.is_done(items_[next_].sent)) {
    process(items_[next_++]);
  }
}

Status CrossAllreduce::finish() {
  if (doubling_) return run_doubling();
  while (next_ < items_.size()) {
    const Item& item = items_[next_];
    if (Status status = links_.wait(item.arrived); !status.ok()) return status;
    if (Status status = links_.wait(item.sent); !status.ok()) return status;
    process(item);
    next_++;
  }
  return links_.wait(last_sent_);
}

void CrossAllreduce::process(const Item& item) {
  if (item.incoming != nullptr) {
    std::byte* data = data_ + item.begin;
    // A ring forwards partial sums of the ranks before this one; in an exchange the operands are in the order of the
    // team.
    bool ours_first = team_->size() == 2 && team_->self == 0;
    reduce_into(data, ours_first ? data : item.incoming, ours_first ? item.incoming : data, item.end - item.begin,
                item.last);
  }
  if (!item.forward) return;
  last_sent_ = links_.send(team_->ranks[(team_->self + 1) % team_->size()], shard(item.begin, item.end));
  links_.progress();
}

// ---- exchange ----

void CrossAllreduce::start_exchange() {
  int32_t peer = team_->ranks[1 - team_->self];
  size_t length = segment_of(bytes_);
  for (size_t begin = 0; begin < bytes_; begin += length) {
    size_t end = std::min(bytes_, begin + length);
    Item item{.begin = begin, .end = end, .incoming = incoming_ + begin, .last = true, .arrived = {}, .sent = {}};
    item.arrived = links_.receive(peer, {incoming_ + begin, end - begin});
    item.sent = last_sent_ = links_.send(peer, shard(begin, end));
    items_.push_back(item);
  }
}

// ---- ring ----

// Rank r sends block r first. In step s of the first round it receives block r - s, adds its own data and forwards it,
// which completes block r + 1; in step s of the second round it receives the complete block r + 1 - s. All receives are
// queued at once. The second round may arrive in memory from which the first one is still sending; but no byte of a
// complete block can arrive before this rank has sent its part of that block.
void CrossAllreduce::start_ring() {
  size_t ranks = team_->size(), self = team_->self;
  size_t block = round_up((bytes_ + ranks - 1) / ranks, kLine), length = segment_of(block);
  int32_t next = team_->ranks[(self + 1) % ranks], before = team_->ranks[(self + ranks - 1) % ranks];
  auto for_segments = [&](size_t which, auto&& visit) {
    size_t end = std::min(bytes_, (which + 1) * block);
    for (size_t begin = std::min(bytes_, which * block); begin < end; begin += length) {
      visit(begin, std::min(end, begin + length));
    }
  };
  std::byte* place = incoming_;
  for (size_t step = 1; step < ranks; step++) {
    for_segments((self + ranks - step) % ranks, [&](size_t begin, size_t end) {
      Mesh::Ticket arrived = links_.receive(before, {place, end - begin});
      items_.push_back({begin, end, place, true, step == ranks - 1, arrived, {}});
      place += end - begin;
    });
  }
  for (size_t step = 1; step < ranks; step++) {
    for_segments((self + 1 + ranks - step) % ranks, [&](size_t begin, size_t end) {
      Mesh::Ticket arrived = links_.receive(before, shard(begin, end));
      items_.push_back({begin, end, nullptr, step < ranks - 1, false, arrived, {}});
    });
  }
  forwards_ = items_.size();
  while (forwards_ > 0 && !items_[forwards_ - 1].forward) forwards_--;
  for_segments(self, [&](size_t begin, size_t end) { last_sent_ = links_.send(next, shard(begin, end)); });
}

// ---- doubling ----

Status CrossAllreduce::swap(int32_t peer, bool is_lower, bool is_last) {
  Mesh::Ticket arrived = links_.receive(peer, {incoming_, bytes_});
  Mesh::Ticket sent = links_.send(peer, shard(0, bytes_));
  if (Status status = links_.wait(arrived); !status.ok()) return status;
  if (Status status = links_.wait(sent); !status.ok()) return status;
  reduce_into(data_, is_lower ? data_ : incoming_, is_lower ? incoming_ : data_, bytes_, is_last);
  return {};
}

Status CrossAllreduce::run_doubling() {
  doubling_ = false;
  size_t power = std::bit_floor(team_->size()), extra = team_->size() - power, self = team_->self;
  const std::vector<int32_t>& ranks = team_->ranks;
  // The first 2 * extra ranks form pairs, of which the lower one takes part.
  bool paired = self < 2 * extra;
  if (paired && self % 2 == 1) {
    if (Status status = links_.wait(links_.send(ranks[self - 1], shard(0, bytes_))); !status.ok()) return status;
    return links_.wait(links_.receive(ranks[self - 1], shard(0, bytes_)));
  }
  if (paired) {
    if (Status status = links_.wait(links_.receive(ranks[self + 1], {incoming_, bytes_})); !status.ok()) return status;
    reduce_into(data_, data_, incoming_, bytes_, false);
  }
  size_t index = paired ? self / 2 : self - extra;
  for (size_t distance = 1; distance < power; distance *= 2) {
    size_t other = index ^ distance;
    size_t peer = other < extra ? 2 * other : other + extra;
    if (Status status = swap(ranks[peer], index < other, 2 * distance == power); !status.ok()) return status;
  }
  return paired ? links_.wait(links_.send(ranks[self + 1], shard(0, bytes_))) : Status();
}

}  // namespace hvd
