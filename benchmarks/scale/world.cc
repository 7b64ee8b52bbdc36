#include "scale/world.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include "model/host_tree.h"
#include "scale/node_memory.h"

namespace hvd {
namespace {

constexpr TimePoint kNow{};  // nothing here takes long

void must(bool is_true) {
  if (!is_true) std::abort();
}

// Runs it as the work of that kind of node.
template <class Task>
auto as(Owner owner, Task&& task) {
  charge(owner);
  auto result = task();
  charge(Owner::none);
  return result;
}

}  // namespace

ScaleWorld::ScaleWorld(int32_t ranks, int32_t ranks_per_host, int32_t fan_out) : ranks_(ranks) {
  std::vector<std::vector<int32_t>> hosts;
  int32_t per_host = fan_out == 0 ? ranks : ranks_per_host;
  for (int32_t rank = 0; rank < ranks; rank++) {
    if (rank % per_host == 0) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  plant(hosts, std::max(fan_out, 1));
  for (size_t i = 0; i < kVoices; i++) {
    voices_.push_back(as(Owner::rank, [&] { return std::make_unique<Negotiator>(ranks); }));
  }
}

void ScaleWorld::plant(const std::vector<std::vector<int32_t>>& hosts, int32_t fan_out) {
  AggregatorSettings settings{.hold = hold_time({})};
  std::map<int32_t, std::pair<size_t, Below>> widest;  // by depth: the node with the most children
  for (int32_t host = 0; host < static_cast<int32_t>(hosts.size()); host++) {
    HostPlace place = place_of_host(host, static_cast<int32_t>(hosts.size()), fan_out);
    Below below = ranks_below(host, hosts, fan_out);
    Node& node = nodes_.emplace_back();
    node.parent = static_cast<size_t>(std::max(place.parent, 0));
    node.depth = place.depth;
    node.ranks = hosts[static_cast<size_t>(host)];
    node.leader = Rank{node.ranks.front()};
    if (host == 0) {
      root_ = as(Owner::root, [&] { return std::make_unique<Coordinator>(below, CoordinatorSettings{}); });
    } else {
      node.aggregator = as(Owner::leader, [&] { return std::make_unique<Aggregator>(ranks_, below, settings); });
    }
    auto [best, is_first] = widest.try_emplace(place.depth, nodes_.size() - 1, below);
    if (!is_first && below.size() > best->second.second.size()) best->second = {nodes_.size() - 1, below};
  }
  witnesses_.resize(widest.size());
  for (auto& [depth, node] : widest) {
    Witness& witness = witnesses_[static_cast<size_t>(depth)];
    witness.below = std::move(node.second);
    witness.depth = depth;
    nodes_[node.first].witness = &witness;
  }
}

StepTraffic ScaleWorld::step(const std::vector<Request>& requests, int bursts) {
  StepTraffic traffic;
  std::vector<std::vector<Bytes>> messages = write_messages(requests, bursts);
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    for (int32_t rank : node.ranks) {
      for (const Bytes& bytes : messages[static_cast<size_t>(rank) % kVoices]) {
        node.inbox.push_back({Rank{rank}, bytes});
        traffic.rank.messages_out++;
        traffic.rank.bytes_out += bytes.size();
      }
    }
    hear(node, i == 0 ? traffic.root : traffic.leader);
  }
  hand_down(traffic);
  return traffic;
}

// By voice, then burst.
std::vector<std::vector<Bytes>> ScaleWorld::write_messages(const std::vector<Request>& requests, int bursts) {
  std::vector<std::vector<Bytes>> messages(kVoices);
  std::vector<const Request*> order;
  for (const Request& request : requests) order.push_back(&request);
  for (size_t voice = 0; voice < kVoices; voice++) {
    Negotiator& negotiator = *voices_[voice];
    std::shuffle(order.begin(), order.end(), random_);
    size_t next = 0;
    for (int burst = 1; burst <= bursts; burst++) {
      size_t end = order.size() * static_cast<size_t>(burst) / static_cast<size_t>(bursts);
      charge(Owner::rank);
      for (; next < end; next++) negotiator.announce(*order[next]);
      charge(Owner::none);
      ByteView bytes = negotiator.outgoing();
      messages[voice].emplace_back(bytes.begin(), bytes.end());
      negotiator.clear_outgoing();
    }
  }
  return messages;
}

// The node gets what its children sent, in any order that keeps that of each child.
void ScaleWorld::hear(Node& node, Traffic& traffic) {
  std::vector<Rank> turns;
  std::map<Rank, std::vector<size_t>> by_child;
  for (size_t i = 0; i < node.inbox.size(); i++) {
    turns.push_back(node.inbox[i].from);
    by_child[node.inbox[i].from].push_back(i);
  }
  std::shuffle(turns.begin(), turns.end(), random_);
  std::map<Rank, size_t> taken;
  Heard* heard = node.witness != nullptr ? &node.witness->steps.emplace_back() : nullptr;
  for (Rank from : turns) {
    Message& message = node.inbox[by_child[from][taken[from]++]];
    traffic.messages_in++;
    traffic.bytes_in += message.bytes.size();
    if (node.aggregator == nullptr) {
      must(as(Owner::root, [&] { return root_->receive(from, message.bytes, kNow).ok(); }));
    } else {
      Message up{node.leader, {}};
      bool speaks = as(Owner::leader, [&] {
        must(node.aggregator->receive(from, message.bytes, kNow).ok());
        return node.aggregator->flush(kNow, up.bytes);
      });
      if (speaks) {
        traffic.messages_out++;
        traffic.bytes_out += up.bytes.size();
        nodes_[node.parent].inbox.push_back(std::move(up));
      }
    }
    if (heard != nullptr) heard->up.push_back(std::move(message));
  }
  node.inbox.clear();
}

void ScaleWorld::hand_down(StepTraffic& traffic) {
  Bytes message;
  must(as(Owner::root, [&] { return root_->decide(kNow, message); }));
  traffic.root.messages_out++;
  traffic.root.bytes_out += message.size();
  for (Node& node : nodes_) {
    if (node.witness != nullptr) node.witness->steps.back().down = message;
    if (node.aggregator == nullptr) continue;
    must(as(Owner::leader, [&] { return node.aggregator->follow(message, kNow).ok(); }));
  }
  std::vector<Decision> decisions;
  for (auto& voice : voices_) {
    must(as(Owner::rank, [&] { return voice->receive(message, decisions).ok(); }));
    decisions.clear();
  }
  traffic.rank.messages_in += static_cast<uint64_t>(ranks_);
  traffic.rank.bytes_in += message.size() * static_cast<size_t>(ranks_);
}

double ScaleWorld::rank_memory() const { return static_cast<double>(live_bytes(Owner::rank)) / kVoices; }
double ScaleWorld::leader_memory() const {
  return leaders() == 0 ? 0 : static_cast<double>(live_bytes(Owner::leader)) / leaders();
}
double ScaleWorld::root_memory() const { return static_cast<double>(live_bytes(Owner::root)); }

}  // namespace hvd
