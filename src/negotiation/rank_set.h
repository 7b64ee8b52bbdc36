// A set of ranks of one world, as bits. Thread rule: plain value.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/request.h"

namespace hvd {

class RankSet {
 public:
  explicit RankSet(int32_t world_size) : words_((static_cast<size_t>(world_size) + 63) / 64) {}

  bool contains(Rank rank) const { return (words_[word_of(rank)] & bit_of(rank)) != 0; }
  // False: it was there already.
  bool insert(Rank rank) {
    uint64_t& word = words_[word_of(rank)];
    if ((word & bit_of(rank)) != 0) return false;
    word |= bit_of(rank);
    size_++;
    return true;
  }
  // False: it was not there.
  bool erase(Rank rank) {
    if (!contains(rank)) return false;
    words_[word_of(rank)] &= ~bit_of(rank);
    size_--;
    return true;
  }
  void clear() {
    if (size_ > 0) words_.assign(words_.size(), 0);
    size_ = 0;
  }
  int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // How many ranks are in one of the two sets or in both.
  int32_t count_union(const RankSet& other) const {
    int32_t count = 0;
    for (size_t i = 0; i < words_.size(); i++) count += std::popcount(words_[i] | other.words_[i]);
    return count;
  }

 private:
  static size_t word_of(Rank rank) { return static_cast<size_t>(index_of(rank)) / 64; }
  static uint64_t bit_of(Rank rank) { return uint64_t{1} << (static_cast<size_t>(index_of(rank)) % 64); }

  std::vector<uint64_t> words_;
  int32_t size_ = 0;
};

// "rank 3" or "ranks 0-2, 5". `mark` is put before each number or range.
std::string text_of_ranks(const std::vector<int32_t>& sorted, std::string_view mark = "");

}  // namespace hvd
