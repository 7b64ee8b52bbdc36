// One direction of a pair's byte stream, cut over one or more connections: the memory that is queued and how far each
// connection has come. Byte p of the stream belongs to *stripe* (p / segment) % stripes; within its stripe the bytes
// keep their order, so both sides know where each byte goes without any header.
// Thread rule: one caller at a time.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <vector>

namespace hvd {

template <class Span>
class Lane {
 public:
  Lane(size_t stripes, size_t segment) : segment_(segment) { set_stripes(stripes); }

  // Before anything has moved. 0: not known yet, so nothing can.
  void set_stripes(size_t stripes) {
    at_.clear();
    for (size_t stripe = 0; stripe < stripes; stripe++) at_.push_back(stripe * segment_);
  }

  void push(Span bytes) {
    if (bytes.empty()) return;
    pieces_.push_back({queued_, bytes});
    queued_ += bytes.size();
  }
  void clear() { pieces_.clear(); }
  bool is_empty() const { return pieces_.empty(); }
  uint64_t queued() const { return queued_; }  // bytes ever pushed
  // All bytes before this position have been moved. The stripe that owns the first unmoved byte stands at it.
  uint64_t done() const { return done_; }

  // What a stripe may move next, in one piece of memory; empty: nothing.
  Span next(size_t stripe) const {
    uint64_t at = at_[stripe];
    if (at >= queued_ || pieces_.empty()) return {};
    auto piece = pieces_.begin();
    while (at >= piece->begin + piece->bytes.size()) piece++;
    size_t offset = static_cast<size_t>(at - piece->begin);
    size_t length = piece->bytes.size() - offset;
    if (at_.size() > 1) length = std::min(length, segment_ - static_cast<size_t>(at % segment_));
    return piece->bytes.subspan(offset, length);
  }
  void advance(size_t stripe, size_t count) {
    uint64_t& at = at_[stripe];
    at += count;
    if (at_.size() > 1 && at % segment_ == 0) at += segment_ * (at_.size() - 1);
    done_ = std::min(*std::min_element(at_.begin(), at_.end()), queued_);
    while (!pieces_.empty() && pieces_.front().begin + pieces_.front().bytes.size() <= done_) pieces_.pop_front();
  }

 private:
  struct Piece {
    uint64_t begin;  // position in the stream
    Span bytes;
  };
  size_t segment_;
  std::vector<uint64_t> at_;  // by stripe: position of its first byte that has not moved
  std::deque<Piece> pieces_;  // not yet done
  uint64_t queued_ = 0, done_ = 0;
};

}  // namespace hvd
