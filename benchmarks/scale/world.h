// A simulated world of up to many thousand ranks in one thread: the real negotiation code of every node, with messages
// handed over in memory. Counts the messages that each kind of node sends and receives, and keeps those of some nodes.
//
// Ranks that have processed the same down messages are in the same state, so that a few Negotiators speak for all
// ranks: rank r sends what number r modulo kVoices wrote, each with its requests in another order.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/wire.h"
#include "model/request.h"
#include "negotiation/aggregator.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"

namespace hvd {

struct Message {
  Rank from;
  Bytes bytes;
};

// What a node heard in one step, in that order, and then from the root.
struct Heard {
  std::vector<Message> up;
  Bytes down;
};

using Below = std::vector<std::vector<int32_t>>;  // the ranks below each child

struct Witness {
  Below below;
  int32_t depth = 0;  // 0: the root
  std::vector<Heard> steps;
};

// What one kind of node did in a step, all of them together.
struct Traffic {
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
};

struct StepTraffic {
  Traffic rank, leader, root;
};

class ScaleWorld {
 public:
  // `fan_out` 0: a star, every rank sends to the root itself.
  ScaleWorld(int32_t ranks, int32_t ranks_per_host, int32_t fan_out);

  // Every rank submits the requests in an order of its own, in `bursts` messages that reach the nodes in any order, and
  // reads the plans.
  StepTraffic step(const std::vector<Request>& requests, int bursts);

  int32_t leaders() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  int32_t hops() const { return static_cast<int32_t>(witnesses_.size()); }  // from the farthest rank to the root
  // Of each level the node with the most children: the root first.
  const std::vector<Witness>& witnesses() const { return witnesses_; }

  // Bytes on the heap, per node.
  double rank_memory() const;
  double leader_memory() const;
  double root_memory() const;

 private:
  static constexpr size_t kVoices = 16;

  struct Node {
    std::unique_ptr<Aggregator> aggregator;  // null: the root
    size_t parent = 0;
    int32_t depth = 0;
    Rank leader{0};
    std::vector<int32_t> ranks;  // those that send to it themselves
    std::vector<Message> inbox;
    Witness* witness = nullptr;
  };

  void plant(const std::vector<std::vector<int32_t>>& hosts, int32_t fan_out);
  std::vector<std::vector<Bytes>> write_messages(const std::vector<Request>& requests, int bursts);
  void hear(Node& node, Traffic& traffic);
  void hand_down(StepTraffic& traffic);

  std::mt19937 random_{1};
  int32_t ranks_;
  std::unique_ptr<Coordinator> root_;
  std::vector<Node> nodes_;  // the root is the first; parents come before their children
  std::vector<Witness> witnesses_;
  std::vector<std::unique_ptr<Negotiator>> voices_;
};

}  // namespace hvd
