// The reading side: copies what a rank writes about itself and puts it into JSON. What is read may have been written by
// any program, so nothing in it is trusted. Thread rule: pure functions on memory that others write.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "observe/layout.h"

namespace hvd::observe {

// All but the ring.
void copy_counters(const Shared& from, Copy& to);

struct Remembered {
  uint64_t number = 0;
  int64_t submitted = 0, agreed = 0, done = 0;  // steady clock of the host, nanoseconds; 0: not yet
  uint64_t bytes = 0;
  int64_t process_set = 0;
  Facts facts;
  std::string name;  // of a long one the end, behind "..."
};
// What is in the ring, oldest first; the last `most`. Entries that are being written are left out.
std::vector<Remembered> read_ring(const Shared& from, size_t most = kRing);

// What hvd.metrics() returns; docs/observation.md explains each field.
nlohmann::json metrics_of(const Copy& counters);
std::string metrics_text(const Shared& from);  // the same as text
// The same of this process or of another one, with its memory, and the newest operations.
nlohmann::json operation_json(const Remembered& operation, int64_t wall_offset);
int64_t resident_bytes(int64_t pid);  // 0: not known

std::string text_of(State state);

}  // namespace hvd::observe
