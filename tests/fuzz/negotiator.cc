// Feeds a negotiator with bytes from a broken or hostile coordinator, between its own requests.
#include "negotiation/negotiator.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/ear.h"
#include "fuzz/steps.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  Ear ear;
  Negotiator negotiator(3, &ear);
  const Bytes carried(sizeof(float));
  Steps steps(std::as_bytes(std::span(data, size)));
  std::vector<Decision> decisions;
  while (auto step = steps.next()) {
    Request request;
    request.name = step->waits ? "a" : "b";
    request.device = step->rank - 1;
    negotiator.announce(request, can_be_carried(request) ? carried : Bytes());
    if (!negotiator.receive(step->message, decisions).ok()) return 0;
    for (const Decision& decision : decisions) {
      const Plan* plan = std::get_if<Plan>(&decision);
      if (plan == nullptr) continue;
      if (plan->tensors.empty()) std::abort();
      for (const AgreedRequest& tensor : plan->tensors) {
        if (tensor == nullptr || elements_of(tensor->shape) < 0) std::abort();
      }
    }
    decisions.clear();
    negotiator.clear_outgoing();
    negotiator.finish_offered();
  }
  return 0;
}
