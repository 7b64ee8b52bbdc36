#include "adapters/jax/started.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "adapters/jax/collective.h"

namespace hvd::jax {
namespace {

struct Started {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<size_t> sizes;
  // last member: it is destroyed first, and waits until the engine no longer uses the memory
  std::unique_ptr<Collective> collective;
};

// Never destroyed: XLA's threads may still run calls while the process exits.
struct Table {
  std::mutex mutex;
  std::map<uint64_t, Started> entries;  // guarded by mutex, like the number
  uint64_t next = 1;
};
Table& table() {
  static Table& table = *new Table;
  return table;
}

// XLA's arrays have no 64-bit integers by default.
void check_number(const FfiBuffer& buffer) {
  if (buffer.dtype != kFfiU32 || size_in_bytes(buffer) != sizeof(uint64_t))
    throw CallError(kFfiInvalidArgument, "the number of a started operation must be an array of two uint32");
}

}  // namespace

void start_collective(const FfiFrame& frame) {
  if (frame.outputs.count != 1) throw CallError(kFfiInvalidArgument, "a start must have one result, its number");
  const FfiBuffer& number = *buffers_of(frame.outputs)[0];
  check_number(number);
  Started started;
  std::vector<hvd_tensor> tensors;
  for (const FfiBuffer* buffer : buffers_of(frame.inputs)) {
    size_t size = size_in_bytes(*buffer);
    std::unique_ptr<std::byte[]> copy(new std::byte[size + 1]);
    if (size > 0) std::memcpy(copy.get(), buffer->data, size);
    hvd_tensor tensor = tensor_of(*buffer);
    tensor.data = copy.get();
    tensors.push_back(tensor);
    started.memory.push_back(std::move(copy));
    started.sizes.push_back(size);
  }
  Call call = read_call(frame, tensors.size());
  if (call.kind != HVD_ALLREDUCE && call.kind != HVD_BROADCAST)
    throw CallError(kFfiInvalidArgument, "only allreduce and broadcast can be started");
  started.collective = std::make_unique<Collective>(std::move(call), tensors, tensors);
  started.collective->start(false);
  std::scoped_lock lock(table().mutex);
  uint64_t own = table().next++;
  table().entries.emplace(own, std::move(started));
  std::memcpy(number.data, &own, sizeof own);
}

void finish_collective(const FfiFrame& frame) {
  if (frame.inputs.count != 1)
    throw CallError(kFfiInvalidArgument, "a done must have one array, the number of its start");
  const FfiBuffer& number = *buffers_of(frame.inputs)[0];
  check_number(number);
  uint64_t own = 0;
  std::memcpy(&own, number.data, sizeof own);
  std::unique_lock lock(table().mutex);
  auto entry = table().entries.extract(own);
  lock.unlock();
  if (entry.empty())
    throw CallError(
        kFfiInvalidArgument,
        "this operation has already finished, or was started in a world that has ended: call done once per start");
  Started& started = entry.mapped();
  started.collective->finish();
  auto outputs = buffers_of(frame.outputs);
  if (outputs.size() != started.sizes.size())
    throw CallError(kFfiInvalidArgument, "start and done have different numbers of arrays");
  for (size_t i = 0; i < outputs.size(); i++) {
    if (size_in_bytes(*outputs[i]) != started.sizes[i])
      throw CallError(kFfiInvalidArgument, "start and done have arrays of different sizes");
    if (started.sizes[i] > 0) std::memcpy(outputs[i]->data, started.memory[i].get(), started.sizes[i]);
  }
}

void forget_started() {
  std::map<uint64_t, Started> forgotten;
  std::scoped_lock lock(table().mutex);
  forgotten.swap(table().entries);  // destroyed after the lock is released
}

}  // namespace hvd::jax
