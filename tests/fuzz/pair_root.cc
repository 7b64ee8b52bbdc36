// Feeds a coordinator of two ranks with what broken or hostile ones may send: such a world carries data
// (negotiation/carried.h). The input is as for coordinator.cc, and what it says must be readable as well.
#include <cstdint>
#include <cstdlib>

#include "fuzz/ear.h"
#include "fuzz/steps.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  Ear ear;
  CoordinatorSettings settings;
  settings.cache_capacity = 2;
  settings.stall_shutdown = std::chrono::hours(1);
  settings.carried = &ear;
  Coordinator root(kRanksThatCarry, settings);
  Negotiator reader(kRanksThatCarry);
  Steps steps(std::as_bytes(std::span(data, size)));
  TimePoint now{};
  Bytes message;
  std::vector<Decision> decisions;
  while (auto step = steps.next()) {
    now += step->waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    if (!root.receive(Rank{step->rank % kRanksThatCarry}, step->message, now).ok()) return 0;
    message.clear();
    if (root.decide(now, message) && !reader.receive(message, decisions).ok()) std::abort();
    root.finish_offered(now);
    decisions.clear();
  }
  return 0;
}
