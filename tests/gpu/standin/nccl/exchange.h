// Moves bytes between one rank and several peers at once, each direction of each pair in order.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "nccl/communicator.h"

namespace standin::nccl {

class Exchange {
 public:
  explicit Exchange(Communicator& communicator)
      : communicator_(communicator), outgoing_(communicator.links.size()), incoming_(communicator.links.size()) {}

  // The bytes stay valid until run() returns. `arrived` is called when they are complete.
  void send(int peer, const void* bytes, size_t count);
  void receive(int peer, void* bytes, size_t count, std::function<void()> arrived = nullptr);

  // False after an abort, or for ever stuck until that when a peer is lost. `stuck` is called from time to time while
  // nothing moves, with the peers whose bytes are missing.
  bool run(const std::function<void(const std::vector<int>&)>& stuck = nullptr);

 private:
  struct Piece {
    char* bytes;
    size_t left;
    std::function<void()> arrived;
  };
  bool move(size_t peer, short events);
  static void finish(std::deque<Piece>& pieces);
  std::vector<int> missing() const;

  Communicator& communicator_;
  std::vector<std::deque<Piece>> outgoing_, incoming_;  // by rank
  std::vector<bool> dead_ = std::vector<bool>(outgoing_.size());
};

}  // namespace standin::nccl
