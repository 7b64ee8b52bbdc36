// A rank's side of the negotiation: writes its requests as messages for the Coordinator and reads the decisions. Holds
// the rank's plan cache: a request that was agreed before is sent as a small integer. Called by the engine. Thread
// rule: one caller at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "model/plan.h"
#include "model/request.h"
#include "negotiation/carried.h"

namespace hvd {

class Negotiator {
 public:
  // `carried` hears what was carried (carried.h); null at the root, where the Coordinator tells it, and where nothing
  // is carried. It must outlive this.
  explicit Negotiator(int32_t world_size, CarriedListener* carried = nullptr);
  ~Negotiator();

  // Queues a request of this rank. The name must not be in flight in its process set. `data`: its tensor, if that shall
  // be carried; it is copied.
  // True: the cache knew it, and it travels as a number.
  bool announce(const Request& request, ByteView data = {});
  // Queues a request to end communication on all ranks.
  void announce_shutdown(const std::string& reason, const Origin& origin = {});

  // The queued message, empty if there is none; call clear_outgoing() after passing it to the transport.
  ByteView outgoing() const;
  void clear_outgoing();
  // Then: finishes what was announced after the root had offered it.
  void finish_offered();

  // Reads one message of the coordinator and appends its decisions to `out`. Not ok: not a message of a coordinator.
  Status receive(ByteView message, std::vector<Decision>& out);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
