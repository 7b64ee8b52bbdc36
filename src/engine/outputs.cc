#include "engine/outputs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "transport/shared_memory.h"

namespace hvd {

Status exchange_rows(Collectives& collectives, Kind kind, std::span<Operation* const> operations) {
  size_t ranks = static_cast<size_t>(collectives.size());
  bool gather = kind != Kind::alltoall;
  std::vector<int64_t> mine;
  for (Operation* operation : operations) {
    if (gather)
      mine.push_back(operation->input.shape[0]);
    else
      mine.insert(mine.end(), operation->sent_rows.begin(), operation->sent_rows.end());
  }
  std::vector<int64_t> all(mine.size() * ranks);
  Status status = collectives.allgather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()));
  if (!status.ok()) return status;
  size_t self = static_cast<size_t>(collectives.position());
  for (size_t i = 0; i < operations.size(); i++) {
    Operation& operation = *operations[i];
    operation.received_rows.resize(ranks);
    int64_t total = 0;
    for (size_t p = 0; p < ranks; p++) {
      int64_t rows = all[p * mine.size() + (gather ? i : self)];
      operation.received_rows[p] = rows;
      total += rows;
    }
    if (!gather) operation.largest_rows = *std::max_element(all.begin(), all.end());
    bool has_output = kind != Kind::gather || collectives.position() == operation.root_position;
    operation.output.shape = operation.input.shape;
    operation.output.shape[0] = has_output ? total : 0;
    if (operation.output.bytes() != operation.output_room) operation.output.data = nullptr;
  }
  return {};
}

Status allocate_output(Operation& operation, DeviceBackend* device) {
  if (operation.is_stand_in || operation.output.data != nullptr || operation.output.bytes() == 0) return {};
  if (operation.allocate) {
    operation.output.data = operation.allocate(operation.output);
    if (operation.output.data != nullptr) return {};
    return {Code::unknown, fmt::format("the caller could not allocate the output of {}", operation.request.name)};
  }
  if (operation.output.device != kHost) {
    if (device == nullptr) return {};  // no backend will accept it
    auto memory = device->allocate(operation.output.device, operation.output.bytes());
    if (!memory.ok()) {
      return {Code::unknown, fmt::format("the output of {}: {}", operation.request.name, memory.status().message())};
    }
    operation.owned_output = {*memory, FreeBytes{.is_on_device = true}};
    operation.output.data = *memory;
    return {};
  }
  void* memory = nullptr;
  if (::posix_memalign(&memory, kLine, operation.output.bytes()) != 0) {
    return {Code::unknown, fmt::format("cannot allocate {} bytes for the output of {}", operation.output.bytes(),
                                       operation.request.name)};
  }
  operation.owned_output.reset(static_cast<std::byte*>(memory));
  operation.output.data = operation.owned_output.get();
  return {};
}

}  // namespace hvd
