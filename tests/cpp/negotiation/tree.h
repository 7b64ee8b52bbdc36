// The negotiation tree of a simulated world: its shapes, and the nodes between the ranks and the root.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "model/host_tree.h"
#include "negotiation/aggregator.h"
#include "negotiation/coordinator.h"

namespace hvd {

using Hosts = std::vector<std::vector<int32_t>>;  // the ranks of each

struct TreeShape {
  std::string name;
  std::function<Hosts(int32_t size)> hosts;
  int32_t fan_out = kHostFanOut;
};
inline void PrintTo(const TreeShape& shape, std::ostream* out) { *out << shape.name; }

// Hosts of these sizes, again and again, until all ranks have one.
inline Hosts hosts_of(int32_t size, const std::vector<int32_t>& sizes) {
  Hosts hosts;
  for (int32_t rank = 0; rank < size;) {
    std::vector<int32_t>& host = hosts.emplace_back();
    int32_t end = std::min(size, rank + sizes[(hosts.size() - 1) % sizes.size()]);
    for (; rank < end; rank++) host.push_back(rank);
  }
  return hosts;
}
// Rank 0 is alone, the others are dealt to two hosts like cards.
inline Hosts dealt_hosts(int32_t size) {
  Hosts hosts{{0}};
  for (int32_t rank = 1; rank < size; rank++) {
    if (rank < 3) hosts.emplace_back();
    hosts[static_cast<size_t>(2 - rank % 2)].push_back(rank);
  }
  return hosts;
}

inline std::vector<TreeShape> all_shapes() {
  return {
      {"flat", [](int32_t size) { return hosts_of(size, {size}); }},
      {"pairs", [](int32_t size) { return hosts_of(size, {2}); }},
      {"one_below",
       [](int32_t size) {
         return hosts_of(size, {1, size});
       }},
      {"dealt", dealt_hosts, 2},
      {"chain", [](int32_t size) { return hosts_of(size, {1}); }, 1},
      {"unequal",
       [](int32_t size) {
         return hosts_of(size, {1, 2, 1, 3});
       },
       2},
  };
}
inline const TreeShape& flat() {
  static const TreeShape shape = all_shapes().front();
  return shape;
}

// Every message arrives at once.
class Tree {
 public:
  Tree(int32_t size, const TreeShape& shape, const CoordinatorSettings& settings, NegotiationObserver* observer)
      : hosts_(shape.hosts(size)), host_of_(static_cast<size_t>(size)) {
    int32_t count = static_cast<int32_t>(hosts_.size());
    for (int32_t host = 0; host < count; host++) {
      for (int32_t rank : hosts_[static_cast<size_t>(host)]) host_of_[static_cast<size_t>(rank)] = host;
      parents_.push_back(place_of_host(host, count, shape.fan_out).parent);
      std::vector<std::vector<int32_t>> below = ranks_below(host, hosts_, shape.fan_out);
      bool is_single = below.size() == 1 && below.front().size() == 1;
      nodes_.push_back(host == 0 || is_single ? nullptr
                                              : std::make_unique<Aggregator>(
                                                    size, below, AggregatorSettings{.hold = hold_time(settings)}));
    }
    root = std::make_unique<Coordinator>(ranks_below(0, hosts_, shape.fan_out), settings, observer);
  }

  bool is_flat() const { return nodes_.size() == 1; }

  // A message of the rank, and the resulting messages up to the root.
  Status up(int32_t rank, ByteView message, TimePoint now) {
    return up_to(host_of_[static_cast<size_t>(rank)], rank, message, now);
  }
  // All nodes look at the clock; those below first.
  void tick(TimePoint now) {
    for (size_t host = nodes_.size(); host-- > 0;) expect_ok(pass_on(static_cast<int32_t>(host), now));
  }
  void down(ByteView message, TimePoint now) {
    for (auto& node : nodes_) {
      if (node != nullptr) expect_ok(node->follow(message, now));
    }
    tick(now);
  }
  // The root's own in a flat tree. Else the root need not know yet, but some node must wake up in time.
  void expect_deadline(TimePoint deadline) const {
    TimePoint first = root->next_deadline();
    for (const auto& node : nodes_) {
      if (node != nullptr) first = std::min(first, node->next_deadline());
    }
    if (is_flat() || deadline == kNever) {
      EXPECT_EQ(first, deadline);
    } else {
      EXPECT_LE(first, deadline);
    }
  }

  std::unique_ptr<Coordinator> root;

 private:
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  Status up_to(int32_t host, int32_t rank, ByteView message, TimePoint now) {
    Aggregator* node = nodes_[static_cast<size_t>(host)].get();
    if (host == 0) return root->receive(Rank{rank}, message, now);
    if (node == nullptr) return up_to(parents_[static_cast<size_t>(host)], rank, message, now);
    if (Status status = node->receive(Rank{rank}, message, now); !status.ok()) return status;
    return pass_on(host, now);
  }
  Status pass_on(int32_t host, TimePoint now) {
    Aggregator* node = nodes_[static_cast<size_t>(host)].get();
    Bytes message;
    if (node == nullptr || !node->flush(now, message)) return {};
    int32_t leader = hosts_[static_cast<size_t>(host)].front();
    return up_to(parents_[static_cast<size_t>(host)], leader, message, now);
  }

  Hosts hosts_;
  std::vector<int32_t> host_of_, parents_;
  std::vector<std::unique_ptr<Aggregator>> nodes_;  // by host; null: the root, or a single rank
};

}  // namespace hvd
