// A set of ranks of one world, as bits. Allocates memory for its first member. Thread rule: plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/request.h"

namespace hvd {

// `Index` is an enum; index_of() returns a number below the size of the set.
template <class Index>
class IndexSet {
 public:
  explicit IndexSet(int32_t capacity) : capacity_(capacity) {}

  bool contains(Index index) const { return size_ > 0 && (words_[word_of(index)] & bit_of(index)) != 0; }
  // False: it was already present.
  bool insert(Index index) {
    if (words_.empty()) words_.resize((static_cast<size_t>(capacity_) + 63) / 64);
    uint64_t& word = words_[word_of(index)];
    if ((word & bit_of(index)) != 0) return false;
    word |= bit_of(index);
    size_++;
    return true;
  }
  // False: it was not present.
  bool erase(Index index) {
    if (!contains(index)) return false;
    words_[word_of(index)] &= ~bit_of(index);
    size_--;
    return true;
  }
  void clear() {
    if (size_ > 0) words_.assign(words_.size(), 0);
    size_ = 0;
  }
  int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static size_t word_of(Index index) { return static_cast<size_t>(index_of(index)) / 64; }
  static uint64_t bit_of(Index index) { return uint64_t{1} << (static_cast<size_t>(index_of(index)) % 64); }

  std::vector<uint64_t> words_;
  int32_t capacity_;
  int32_t size_ = 0;
};

using RankSet = IndexSet<Rank>;

// "rank 3" or "ranks 0-2, 5". `mark` is put before each number or range.
std::string text_of_ranks(const std::vector<int32_t>& sorted, std::string_view mark = "");

}  // namespace hvd
