// The accesses to one allocation that later ones must be ordered after: per byte range the last write, and the reads
// since. Thread rule: core().mutex is held.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/core.h"

namespace standin {

struct Conflict {
  SitePointer earlier;
  bool earlier_writes;
  size_t offset, bytes;  // the part that both touch
};

class History {
 public:
  explicit History(size_t bytes) { parts_[0].end = bytes; }

  // Adds an access to [offset, offset + bytes), and returns an earlier one that is not ordered before it, if any.
  std::optional<Conflict> add(const SitePointer& site, size_t offset, size_t bytes, bool writes);

 private:
  struct Part {
    size_t end = 0;
    SitePointer written;
    std::vector<SitePointer> read;  // one per timeline, since the write
  };
  std::map<size_t, Part>::iterator split(size_t offset);

  std::map<size_t, Part> parts_;  // by begin; they cover the allocation
};

}  // namespace standin
