// A GPU has room for one waiting NCCL kernel: launches take their turns in launch order. Ranks that launch
// communicators in different orders wait for each other for ever, as they may on a GPU. Each rank that waits sends a
// probe along the chain of waiting launches; one that comes back proves a cycle, and is reported. Thread rule:
// core().mutex is held, unless noted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nccl/communicator.h"

namespace standin::nccl {

struct Turn {
  uint64_t number = 0;  // counts the launches of the process
  Communicator* communicator = nullptr;
  std::string what;
  Point point;              // on its stream
  std::vector<int> awaits;  // peers that a running launch waits for
};
using TurnPointer = std::shared_ptr<Turn>;

// Joins the queue of its GPU, at launch.
TurnPointer take_turn(Communicator& communicator, std::string what);
// Waits until the launches before it have ended. False if it was aborted.
bool wait_for_turn(const TurnPointer& turn, std::unique_lock<std::mutex>& lock);
void end_turn(const TurnPointer& turn);
void forget_turns(const Communicator& communicator);  // after its abort

// Launches on this GPU that have not ended, of other communicators than these.
std::vector<TurnPointer> others_in_queue(int gpu, const std::vector<Communicator*>& except);

// A running launch has waited for these peers for a while. Without the mutex.
void send_probes(const TurnPointer& turn, const std::vector<int>& awaits);
// A probe from a peer. Without the mutex.
void on_notice(Communicator& communicator, const std::string& text);

}  // namespace standin::nccl
