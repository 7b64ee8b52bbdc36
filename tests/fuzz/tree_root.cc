// Feeds the root of a negotiation tree with what broken or hostile nodes below it may send. Whatever it says must be
// readable for every negotiator and every node.
#include <cstdint>
#include <cstdlib>

#include "fuzz/steps.h"
#include "fuzz/tree.h"
#include "negotiation/negotiator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  Coordinator root(below_root(), tree_settings());
  Negotiator reader(kTreeRanks);
  Aggregator follower(kTreeRanks, below_node(), node_settings());
  Steps steps(std::as_bytes(std::span(data, size)));
  TimePoint now{};
  Bytes message;
  std::vector<Decision> decisions;
  while (auto step = steps.next()) {
    now += step->waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    if (!root.receive(Rank{step->rank}, step->message, now).ok()) return 0;
    message.clear();
    if (root.next_deadline() <= now && !root.decide(now, message)) std::abort();
    if (message.empty()) continue;
    if (!reader.receive(message, decisions).ok() || !follower.follow(message, now).ok()) std::abort();
    decisions.clear();
  }
  return 0;
}
