// Several pieces of memory as one sequence of bytes: the tensors of a fused plan. Thread rule: plain value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/kernels.h"

namespace hvd {

class Segments {
 public:
  Segments() = default;
  Segments(std::byte* data, size_t bytes) { add(data, bytes); }

  void clear() {
    pieces_.clear();
    bytes_ = 0;
  }
  void add(std::byte* data, size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({data, bytes_, bytes_ + bytes});
    bytes_ += bytes;
  }
  size_t bytes() const { return bytes_; }

  // Calls visit(data, bytes, offset in the range) for the pieces of [begin, end), in order.
  template <class Visit>
  void visit(size_t begin, size_t end, Visit&& visit) const {
    for (size_t i = find(begin); i < pieces_.size() && pieces_[i].begin < end; i++) {
      const Piece& piece = pieces_[i];
      size_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
      visit(piece.data + (from - piece.begin), to - from, from - begin);
    }
  }
  // The same for two lists split at the same offsets: visit(data, other's data, bytes, offset).
  template <class Visit>
  void visit_with(const Segments& other, size_t begin, size_t end, Visit&& visit) const {
    for (size_t i = find(begin); i < pieces_.size() && pieces_[i].begin < end; i++) {
      const Piece& piece = pieces_[i];
      size_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
      visit(piece.data + (from - piece.begin), other.pieces_[i].data + (from - piece.begin), to - from, from - begin);
    }
  }
  void read(size_t begin, size_t end, std::byte* destination, StoreHint store = StoreHint::cached) const {
    visit(begin, end,
          [&](const std::byte* data, size_t bytes, size_t at) { hvd::copy(destination + at, data, bytes, store); });
  }
  void write(size_t begin, size_t end, const std::byte* source) const {
    visit(begin, end, [&](std::byte* data, size_t bytes, size_t at) { hvd::copy(data, source + at, bytes); });
  }
  // Appends [begin, end) to `to`.
  void append_to(Segments& to, size_t begin, size_t end) const {
    visit(begin, end, [&](std::byte* data, size_t bytes, size_t) { to.add(data, bytes); });
  }
  // Appends `data`, split at the offsets where this is split in [begin, end).
  void append_cut(Segments& to, size_t begin, size_t end, std::byte* data) const {
    visit(begin, end, [&](std::byte*, size_t bytes, size_t at) { to.add(data + at, bytes); });
  }
  // The address of [begin, end) if it is in one piece, else null.
  std::byte* contiguous(size_t begin, size_t end) const {
    size_t i = find(begin);
    if (i >= pieces_.size() || end > pieces_[i].end) return nullptr;
    return pieces_[i].data + (begin - pieces_[i].begin);
  }

 private:
  struct Piece {
    std::byte* data;
    size_t begin, end;
  };
  size_t find(size_t offset) const {  // the piece that holds the byte at `offset`
    if (pieces_.size() <= 1 || offset == 0) return 0;
    auto after = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.end <= offset; });
    return static_cast<size_t>(after - pieces_.begin());
  }

  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

// Copies all of `from`; the two may be split at different offsets. Identical memory is skipped.
inline void copy_over(const Segments& from, const Segments& to) {
  from.visit(0, from.bytes(), [&](const std::byte* source, size_t length, size_t begin) {
    to.visit(begin, begin + length, [&](std::byte* data, size_t bytes, size_t at) {
      if (data != source + at) hvd::copy(data, source + at, bytes);
    });
  });
}

}  // namespace hvd
