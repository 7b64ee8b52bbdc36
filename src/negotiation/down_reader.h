// Reads the stream of down messages for a node that forwards it: which requests ended, and the meaning of cache ids. An
// evicted id stays readable until every rank below has acknowledged the eviction. Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "base/status.h"
#include "base/wire.h"
#include "model/plan.h"
#include "negotiation/messages.h"
#include "negotiation/request_table.h"

namespace hvd {

struct KnownId {
  AgreedRequest request;
  Entry* entry = nullptr;
  uint64_t evicted_in = 0;  // number of the down message; 0: live
};

// A request that all ranks agreed on, or that failed.
struct Ended {
  const Request& request;
  Entry* entry;  // null: this node may not have one
  bool is_ok;
  int32_t result;
  uint64_t message;  // the down message with this decision
};

// The node's reactions, in the order of the message.
class DownListener {
 public:
  virtual ~DownListener() = default;
  // False: no coordinator writes this.
  virtual bool on_ended(const Ended& ended) = 0;
  virtual void on_evicted(const KnownId& known, CacheId id) = 0;
  virtual void on_shutdown_notice() = 0;
};

class DownReader {
 public:
  DownReader(int32_t world_size, RequestTable& table) : world_size_(world_size), table_(table) {}

  // Reads the message of that number. Not ok: it is not that message.
  Status read(ByteView message, uint64_t number, DownListener& listener);

  // Live or evicted; null: no rank can know this id.
  const KnownId* find(CacheId id) const;
  // Every rank below has processed the messages up to this one.
  void forget_evicted(uint64_t processed_by_all);

 private:
  struct Eviction {
    uint64_t message;
    CacheId id;
  };

  void read_item(Decoder& in, uint64_t number, DownListener& listener);
  void read_plan(Decoder& in, uint64_t number, DownListener& listener);
  KnownId read_tensor(Decoder& in);

  int32_t world_size_;
  RequestTable& table_;
  CacheId last_id_ = 0;
  uint32_t device_maps_ = 0;  // received so far
  std::unordered_map<CacheId, KnownId> ids_;
  std::deque<Eviction> evictions_;  // oldest first
};

}  // namespace hvd
