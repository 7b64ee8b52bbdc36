#include "collectives/collectives.h"

#include <vector>

namespace hvd {

Status Collectives::allgather(ByteView mine, std::byte* all) {
  std::vector<Segments> theirs;
  theirs.reserve(static_cast<size_t>(size()));
  for (int32_t p = 0; p < size(); p++) theirs.emplace_back(all + static_cast<size_t>(p) * mine.size(), mine.size());
  return allgather(Segments(const_cast<std::byte*>(mine.data()), mine.size()), theirs);
}

}  // namespace hvd
