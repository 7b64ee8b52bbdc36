// Reads the messages of a node's children in the negotiation tree, and tracks what each has acknowledged: messages of
// Negotiators (messages.h) and of Aggregators (subtree_messages.h). Used by the Coordinator and every Aggregator.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"
#include "negotiation/acknowledgements.h"
#include "negotiation/gathering.h"
#include "negotiation/messages.h"
#include "negotiation/subtree_messages.h"

namespace hvd {

// The node's reactions. `position`: how many down messages the submitting ranks had processed. Not ok: the child is
// broken.
class IntakeListener {
 public:
  virtual ~IntakeListener() = default;
  virtual Status on_cached(Arrival&& arrival, uint64_t position, TimePoint now) = 0;  // without the request
  virtual Status on_full(Arrival&& arrival, uint64_t position, TimePoint now) = 0;
  virtual Status on_join(std::span<const int32_t> ranks, const AgreedRequest& request, TimePoint now) = 0;
  virtual void on_shutdown(Rank rank, std::string_view reason, const Origin& origin) = 0;
  virtual void on_acknowledged(uint64_t before, uint64_t now) = 0;  // by one child
};

class Intake {
 public:
  Intake(int32_t world_size, const Gathering& gathering)
      : world_size_(world_size), gathering_(gathering), acknowledgements_(gathering.tree().size()) {}

  // Reads one message of the child that the rank is below.
  Status receive(Rank rank, ByteView message, TimePoint now, IntakeListener& listener);

  Acknowledgements& acknowledgements() { return acknowledgements_; }

 private:
  Status take(Rank rank, Child child, TimePoint now, IntakeListener& listener);
  Status take_subtree(Child child, TimePoint now, IntakeListener& listener);
  Status take_ids(Child child, uint64_t position, TimePoint now, IntakeListener& listener);
  Status acknowledge(Child child, uint64_t count, IntakeListener& listener);
  Status check_ranks(Child child) const;
  Arrival arrival_of(Child child, TimePoint now) const;
  DeviceMap devices_of(const Arrival& arrival, uint64_t position) const;

  int32_t world_size_;
  const Gathering& gathering_;
  Acknowledgements acknowledgements_;
  UpItem item_;  // reused between calls to avoid allocation
  SubtreeItem subtree_item_;
};

}  // namespace hvd
