// Feeds the store's table with requests, sensible or not, of four clients, and the client's side with replies.
#include <cstdint>
#include <cstdlib>

#include "fuzz/steps.h"
#include "net/address.h"
#include "rendezvous/store_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  constexpr StoreLimits kLimits{.key = 20, .value = 50, .entries = 8, .bytes = 300};
  StoreTable table(kLimits);
  Steps steps(std::as_bytes(std::span(data, size)));
  while (auto step = steps.next()) {
    [[maybe_unused]] bool read = decode_reply(step->message).ok();
    [[maybe_unused]] bool published = decode_endpoints(step->message).ok();
    if (step->waits) table.forget(step->rank);
    auto request = decode_request(step->message);
    if (!request.ok()) continue;
    std::vector<StoreTable::Answer> answers;
    table.handle(step->rank, *request, answers);
    if (table.bytes() > kLimits.bytes) std::abort();
    for (const StoreTable::Answer& answer : answers) {
      if (answer.client > 3 || !decode_reply(answer.reply).ok()) std::abort();
    }
  }
  return 0;
}
