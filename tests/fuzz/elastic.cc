// Feeds what the workers of an elastic job and its launcher read from each other: a message that can be read must be
// written and read the same way again, and a place is one that exists.
#include <cstdint>
#include <cstdlib>
#include <variant>

#include "rendezvous/elastic_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  auto message = decode_elastic_message(std::as_bytes(std::span(data, size)));
  if (!message.ok()) return 0;
  if (const RankAssignment* place = std::get_if<RankAssignment>(&*message)) {
    if (place->rank < 0 || place->rank >= place->size) std::abort();
    if (place->local_rank < 0 || place->local_rank >= place->local_size) std::abort();
    if (place->cross_rank < 0 || place->cross_rank >= place->cross_size) std::abort();
  }
  Bytes written = encode(*message);
  if (written.size() > kLargestElasticMessage) std::abort();
  auto again = decode_elastic_message(written);
  if (!again.ok() || encode(*again) != written) std::abort();
  return 0;
}
