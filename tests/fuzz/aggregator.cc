// Feeds a node of the negotiation tree with what broken or hostile ranks, nodes below it and roots may send. Whatever
// it passes on must be readable for the node above.
#include "negotiation/aggregator.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/steps.h"
#include "fuzz/tree.h"
#include "negotiation/subtree_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  Aggregator node(kTreeRanks, below_node(), node_settings());
  Steps steps(std::as_bytes(std::span(data, size)));
  TimePoint now{};
  Bytes message;
  SubtreeItem item;
  while (auto step = steps.next()) {
    now += step->waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    bool is_fine = step->rank == 0 ? node.follow(step->message, now).ok()
                                   : node.receive(Rank{step->rank}, step->message, now).ok();
    if (!is_fine) return 0;
    message.clear();
    if (node.next_deadline() <= now && !node.flush(now, message)) std::abort();
    if (node.next_deadline() <= now) std::abort();
    Decoder in(message);
    while (!in.at_end()) read_subtree_item(in, item, kTreeRanks);
    if (!in.ok()) std::abort();
  }
  return 0;
}
