// Feeds a coordinator with what a broken or hostile rank may send. The input is a list of steps: a byte that says what
// happens (which rank speaks, time passes, the root decides), and for a message its length and bytes. A rank whose
// message was refused is dead, as in the engine. Whatever the coordinator says must be readable for every negotiator.
#include "negotiation/coordinator.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fuzz/steps.h"
#include "negotiation/negotiator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  constexpr int32_t kRanks = 3;
  CoordinatorSettings settings;
  settings.cache_capacity = 2;
  settings.stall_shutdown = std::chrono::hours(1);
  settings.collective_timeout = std::chrono::minutes(10);
  Coordinator root(kRanks, settings);
  Negotiator reader(kRanks);
  Steps steps(std::as_bytes(std::span(data, size)));
  TimePoint now{};
  Bytes message;
  std::vector<Decision> decisions;
  while (auto step = steps.next()) {
    now += step->waits ? std::chrono::seconds(100) : std::chrono::milliseconds(1);
    if (!root.receive(Rank{step->rank % kRanks}, step->message, now).ok()) return 0;
    message.clear();
    if (root.next_deadline() <= now && !root.decide(now, message)) std::abort();
    if (!message.empty() && !reader.receive(message, decisions).ok()) std::abort();
    decisions.clear();
  }
  return 0;
}
