// Small values by name, which processes of a job exchange before they are connected. The launcher or rank 0 hosts the
// store (store_server.h), all processes use it through a client (store_client.h). Values live as long as the job; those
// of a past generation are removed by prefix. Thread rule: one thread at a time. Every call blocks until the answer or
// the deadline (timed_out).
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
  size_t key = 512, value = 1 << 20;  // bytes each
  size_t entries = 1 << 20;
  size_t bytes = 256 << 20;  // total of keys and values
};

class Store {
 public:
  using Entries = std::vector<std::pair<std::string, Bytes>>;

  virtual ~Store() = default;
  virtual Status set(std::string_view key, ByteView value, TimePoint deadline) = 0;  // replaces an existing value
  virtual Result<Bytes> get(std::string_view key, TimePoint deadline) = 0;           // waits until it is set
  // Waits until at least `count` keys begin with `prefix`, then returns all of them, in order of their keys.
  virtual Result<Entries> gather(std::string_view prefix, size_t count, TimePoint deadline) = 0;
  virtual Status remove(std::string_view prefix, TimePoint deadline) = 0;
};

}  // namespace hvd
