#include "collectives/collectives.h"

#include <memory>
#include <new>
#include <vector>

namespace hvd {

// The default for implementations without a better way: all ranks compute the result, and only the root keeps it.
Status Collectives::reduce(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction) {
  if (position() == root) return allreduce(in, out, reduction);
  std::unique_ptr<std::byte[]> scratch(new (std::nothrow) std::byte[in.bytes()]);
  if (scratch == nullptr) return {Code::unknown, "no memory for the intermediate result of a reduce"};
  Segments result;
  in.append_cut(result, 0, in.bytes(), scratch.get());
  return allreduce(in, result, reduction);
}

// An alltoall in which all but the root receive nothing.
Status Collectives::gather(int32_t root, const Segments& mine, std::span<const Segments> theirs, size_t largest) {
  std::vector<Segments> sent(static_cast<size_t>(size())), none(static_cast<size_t>(size()));
  sent[static_cast<size_t>(root)] = mine;
  return alltoall(sent, position() == root ? theirs : none, largest);
}

// An alltoall in which all but the root send nothing.
Status Collectives::scatter(int32_t root, std::span<const Segments> parts, const Segments& mine, size_t largest) {
  std::vector<Segments> received(static_cast<size_t>(size())), none(static_cast<size_t>(size()));
  received[static_cast<size_t>(root)] = mine;
  return alltoall(position() == root ? parts : none, received, largest);
}

Status Collectives::allgather(ByteView mine, std::byte* all) {
  std::vector<Segments> theirs;
  theirs.reserve(static_cast<size_t>(size()));
  for (int32_t p = 0; p < size(); p++) theirs.emplace_back(all + static_cast<size_t>(p) * mine.size(), mine.size());
  return allgather(Segments(const_cast<std::byte*>(mine.data()), mine.size()), theirs);
}

}  // namespace hvd
