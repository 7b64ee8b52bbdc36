// One direction of a pair's byte stream, split over one or more connections (*stripes*): the queued memory and the
// progress of each stripe.
//
// The stream is split into *stretches*; the sender chooses the number of stripes for each, its *width*. Byte p of a
// stretch belongs to stripe (p / segment) % width. The width is sent in a header before the stretch, on the first
// stripe, which takes part in every stretch. Within its stripe the bytes keep their order, so no further information is
// needed to place them. Thread rule: one caller at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "net/stream.h"
#include "transport/width_choice.h"

namespace hvd {

struct StripeShape {  // the same on both sides
  size_t segment = 256 << 10;
  size_t stretch = 16 << 20;  // whole segments
};

template <class Span>
class StripedStream {
 public:
  static constexpr size_t kHeader = kSendUnit;  // bytes; the first one is the width

  // `choice`: for the sender; null: the widths are received.
  StripedStream(size_t stripes, StripeShape shape, WidthChoice* choice) : shape_(shape), choice_(choice) {
    set_stripes(stripes);
  }

  void set_stripes(size_t stripes) { at_.assign(stripes, 0); }  // before any bytes are moved; 0: not known yet

  void push(Span bytes) {
    if (bytes.empty()) return;
    // Adjacent memory becomes one piece, so that it can be moved by one call.
    if (!pieces_.empty() && pieces_.back().bytes.data() + pieces_.back().bytes.size() == bytes.data()) {
      pieces_.back().bytes = Span(pieces_.back().bytes.data(), pieces_.back().bytes.size() + bytes.size());
    } else {
      pieces_.push_back({queued_, bytes});
    }
    queued_ += bytes.size();
  }
  void clear() { pieces_.clear(); }
  bool is_empty() const { return pieces_.empty(); }
  bool is_broken() const { return broken_; }   // the peer sent an invalid width
  uint64_t queued() const { return queued_; }  // bytes ever pushed
  uint64_t done() const { return done_; }      // all bytes before this position have been moved

  // The bytes a stripe may move next, in one piece of memory; empty: none.
  Span next(size_t stripe) {
    if (at_[stripe] >= queued_ || pieces_.empty()) return {};
    if (at_[stripe] == known_end() && choice_ != nullptr) open(choice_->choose());
    if (is_header_due(stripe)) {
      if (choice_ != nullptr) header_[0] = static_cast<std::byte>(width_at(at_[0]));
      return Span(header_).subspan(header_moved_);
    }
    uint64_t at = at_[stripe];
    if (at >= std::min(queued_, known_end())) return {};
    auto piece = pieces_.begin();
    while (at >= piece->begin + piece->bytes.size()) piece++;
    size_t offset = static_cast<size_t>(at - piece->begin);
    return piece->bytes.subspan(offset, std::min(piece->bytes.size() - offset, run_at(at)));
  }

  void advance(size_t stripe, size_t count) {
    if (is_header_due(stripe)) return advance_header(count);
    uint64_t& at = at_[stripe];
    uint64_t begin = begin_of(at), skipped = shape_.segment * (width_at(at) - 1);
    at += count;
    if ((at - begin) % shape_.segment == 0 && at < begin + shape_.stretch) at += skipped;
    at = std::min(at, begin + shape_.stretch);
    settle(stripe);
    done_ = std::min(*std::min_element(at_.begin(), at_.end()), queued_);
    while (!pieces_.empty() && pieces_.front().begin + pieces_.front().bytes.size() <= done_) pieces_.pop_front();
  }

  // The width of the next stretch that has been moved since the last call; 0: there is none. Call until it returns 0.
  size_t take_finished() {
    if (widths_.empty() || done_ < first_ + shape_.stretch) return 0;
    size_t width = widths_.front();
    widths_.pop_front();
    first_ += shape_.stretch;
    return width;
  }

 private:
  struct Piece {
    uint64_t begin;  // position in the stream
    Span bytes;
  };
  uint64_t begin_of(uint64_t at) const { return at - at % shape_.stretch; }
  uint64_t known_end() const { return first_ + widths_.size() * shape_.stretch; }
  size_t width_at(uint64_t at) const { return widths_[static_cast<size_t>((at - first_) / shape_.stretch)]; }
  bool is_header_due(size_t stripe) const { return stripe == 0 && at_[0] == headers_end_; }

  // The number of contiguous bytes of a stripe from here on.
  size_t run_at(uint64_t at) const {
    size_t offset = static_cast<size_t>(at - begin_of(at));
    if (width_at(at) == 1) return shape_.stretch - offset;
    return std::min(shape_.segment - offset % shape_.segment, shape_.stretch - offset);
  }

  void advance_header(size_t count) {
    header_moved_ += count;
    if (header_moved_ < header_.size()) return;
    header_moved_ = 0;
    headers_end_ += shape_.stretch;
    if (choice_ != nullptr) return;
    size_t width = static_cast<size_t>(header_[0]);
    broken_ = width < 1 || width > at_.size();
    if (!broken_) open(width);
  }

  void open(size_t width) {
    assert(width >= 1 && width <= at_.size());
    widths_.push_back(width);
    for (size_t stripe = 0; stripe < at_.size(); stripe++) settle(stripe);
  }

  // Advances from the start of a stretch to the stripe's first byte in it, or in a later stretch.
  void settle(size_t stripe) {
    uint64_t& at = at_[stripe];
    while (stripe > 0 && at % shape_.stretch == 0 && at < known_end()) {
      bool takes_part = stripe < width_at(at) && stripe * shape_.segment < shape_.stretch;
      at += takes_part ? stripe * shape_.segment : shape_.stretch;
    }
  }

  const StripeShape shape_;
  WidthChoice* const choice_;
  std::vector<uint64_t> at_;   // by stripe: position of its next byte to move
  std::deque<Piece> pieces_;   // not yet done
  std::deque<size_t> widths_;  // of the stretches from first_ on
  uint64_t first_ = 0;         // start of the first stretch that take_finished() has not returned
  uint64_t headers_end_ = 0;   // the widths of the stretches before this position are known
  std::array<std::byte, kHeader> header_{};
  size_t header_moved_ = 0;
  bool broken_ = false;
  uint64_t queued_ = 0, done_ = 0;
};

}  // namespace hvd
