// What the processes of a job tell each other before they are connected: small values by name. The launcher or rank 0
// hosts it (store_server.h), everybody uses it through a client (store_client.h). Values live as long as the job; those
// of a past generation are removed by their prefix. Thread rule: one thread at a time. Every call blocks until it is
// answered or its deadline has come (timed_out).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

struct StoreLimits {
  size_t key = 512, value = 1 << 20;  // bytes of one
  size_t entries = 1 << 20;
  size_t bytes = 256 << 20;  // of all keys and values
};

class Store {
 public:
  using Entries = std::vector<std::pair<std::string, Bytes>>;

  virtual ~Store() = default;
  virtual Status set(std::string_view key, ByteView value, TimePoint deadline) = 0;  // replaces what was there
  virtual Result<Bytes> get(std::string_view key, TimePoint deadline) = 0;           // waits until it is set
  // Waits until at least `count` keys begin with `prefix`, then gives all of those, in order of their keys.
  virtual Result<Entries> gather(std::string_view prefix, size_t count, TimePoint deadline) = 0;
  virtual Status remove(std::string_view prefix, TimePoint deadline) = 0;
};

}  // namespace hvd
