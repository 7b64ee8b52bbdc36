#include "scale/replay.h"

#include <algorithm>
#include <cstdlib>

namespace hvd {
namespace {

constexpr TimePoint kNow{};
constexpr int kTimes = 3;  // from the beginning; the fastest counts, the others were interrupted

void must(bool is_true) {
  if (!is_true) std::abort();
}

// Takes a world through all steps with each call of `start`, which returns a task that does one of them.
template <class Start>
StepTimes fastest(size_t steps, Start&& start) {
  StepTimes best{1e9, 1e9};
  for (int i = 0; i < kTimes; i++) {
    auto step = start();
    for (size_t number = 0; number < steps; number++) {
      TimePoint begin = Clock::now();
      step(number);
      double& time = number == 0 ? best.first : best.cached;
      time = std::min(time, seconds_of(Clock::now() - begin));
    }
  }
  return best;
}

StepTimes replay_root(const Witness& witness) {
  return fastest(witness.steps.size(), [&] {
    auto root = std::make_shared<Coordinator>(witness.below, CoordinatorSettings{});
    return [&witness, root, out = Bytes()](size_t number) mutable {
      for (const Message& message : witness.steps[number].up) {
        must(root->receive(message.from, message.bytes, kNow).ok());
      }
      out.clear();
      must(root->decide(kNow, out));
    };
  });
}

}  // namespace

StepTimes replay(int32_t world_size, const Witness& witness) {
  if (witness.depth == 0) return replay_root(witness);
  return fastest(witness.steps.size(), [&] {
    AggregatorSettings settings{.hold = hold_time({})};
    auto node = std::make_shared<Aggregator>(world_size, witness.below, settings);
    return [&witness, node, out = Bytes()](size_t number) mutable {
      out.clear();
      for (const Message& message : witness.steps[number].up) {
        must(node->receive(message.from, message.bytes, kNow).ok());
        node->flush(kNow, out);
      }
      must(node->follow(witness.steps[number].down, kNow).ok());
    };
  });
}

StepTimes replay_rank(int32_t world_size, const Witness& root, const std::vector<Request>& requests) {
  return fastest(root.steps.size(), [&] {
    auto rank = std::make_shared<Negotiator>(world_size);
    return [&, rank, decisions = std::vector<Decision>()](size_t number) mutable {
      for (const Request& request : requests) rank->announce(request);
      rank->clear_outgoing();
      decisions.clear();
      must(rank->receive(root.steps[number].down, decisions).ok());
    };
  });
}

}  // namespace hvd
