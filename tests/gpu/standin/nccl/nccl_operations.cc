// Collectives, sends and receives, groups, custom operations, registered memory.
#include <cstring>

#include "core/memory.h"
#include "cuda_call.h"
#include "nccl/nccl_call.h"

using namespace standin;
using namespace standin::nccl;

namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

bool on_gpu(const Communicator& communicator, uint64_t address, size_t bytes, const char* call) {
  if (bytes == 0) return true;
  const auto found = find_range(address, bytes);
  if (found != nullptr && found->gpu == communicator.context->gpu) return true;
  violation(std::string(call) + " on " + communicator.name() + ": " + std::to_string(bytes) + " bytes that are not " +
            (found ? "on that GPU, " + to_text(*found) : std::string("in any allocation\n")) + "  called from\n" +
            to_text(here()));
  return false;
}

// Input and output may be the same place, but not overlap in another way.
bool overlaps_wrongly(const Communicator& communicator, const Call& call) {
  const size_t part = call.count * size_of(call.type), shift = part * static_cast<size_t>(communicator.rank);
  const size_t in = bytes_read(call, communicator), out = bytes_written(call, communicator);
  if (in == 0 || out == 0 || call.send + in <= call.receive || call.receive + out <= call.send) return false;
  if (call.kind == Kind::all_gather) return call.send != call.receive + shift;
  if (call.kind == Kind::reduce_scatter) return call.receive != call.send + shift;
  return call.send != call.receive;
}

int add_call(void* handle, void* stream_handle, Call call, const char* name) {
  count(&Counts::nccl_calls);
  int result = 0;
  Communicator* communicator = use(handle, name, &result);
  if (communicator == nullptr) return result;
  const Inside inside(communicator->context->gpu, name);
  if (size_of(call.type) == 0 || call.root < 0 || call.root >= communicator->ranks) {
    set_last_error(std::string(name) + " : invalid type, root or peer");
    return kInvalidArgument;
  }
  Stream* stream = nullptr;
  if (!settings().count_only) {
    const std::lock_guard lock(core().mutex);
    int code = 0;
    stream = launch_stream(stream_handle, name, &code);
    if (stream == nullptr) return kInvalidUsage;
    if (!on_gpu(*communicator, call.send, bytes_read(call, *communicator), name) ||
        !on_gpu(*communicator, call.receive, bytes_written(call, *communicator), name))
      return kInvalidArgument;
    if (overlaps_wrongly(*communicator, call))
      violation(std::string(name) + ": input and output overlap, but are not the same place\n" + to_text(here()));
  }
  group().calls.push_back({communicator, stream, call});
  return end_group(name);
}

// The reduction of an op, built in or made for this communicator; false if there is none.
bool find_reduction(void* handle, int op, Reduction* reduction) {
  reduction->op = op;
  if (op >= 0 && op < kBuiltinOps) return true;
  const std::lock_guard lock(core().mutex);
  const Communicator* communicator = find_communicator(handle);
  if (communicator == nullptr) return true;  // reported later
  const auto found = communicator->custom_ops.find(op);
  if (found == communicator->custom_ops.end()) return false;
  *reduction = found->second;
  return true;
}

int add_reduction(void* handle, void* stream, Call call, int op, const char* name) {
  if (find_reduction(handle, op, &call.reduction)) return add_call(handle, stream, call, name);
  set_last_error(std::string(name) + " : invalid reduction operation");
  return kInvalidArgument;
}

Call call_of(Kind kind, const void* send, const void* receive, size_t count, int type, int root = 0) {
  return {.kind = kind,
          .send = address_of(send),
          .receive = address_of(receive),
          .count = count,
          .type = type,
          .reduction = {},
          .root = root};
}

}  // namespace

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, void* handle, void* stream) {
  return add_reduction(handle, stream, call_of(Kind::all_reduce, send, receive, count, type), op, "ncclAllReduce");
}
int ncclReduce(const void* send, void* receive, size_t count, int type, int op, int root, void* handle, void* stream) {
  return add_reduction(handle, stream, call_of(Kind::reduce, send, receive, count, type, root), op, "ncclReduce");
}
int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op, void* handle, void* stream) {
  return add_reduction(handle, stream, call_of(Kind::reduce_scatter, send, receive, count, type), op,
                       "ncclReduceScatter");
}
int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* handle, void* stream) {
  return add_call(handle, stream, call_of(Kind::broadcast, send, receive, count, type, root), "ncclBroadcast");
}
int ncclAllGather(const void* send, void* receive, size_t count, int type, void* handle, void* stream) {
  return add_call(handle, stream, call_of(Kind::all_gather, send, receive, count, type), "ncclAllGather");
}
int ncclSend(const void* send, size_t count, int type, int peer, void* handle, void* stream) {
  return add_call(handle, stream, call_of(Kind::send, send, nullptr, count, type, peer), "ncclSend");
}
int ncclRecv(void* receive, size_t count, int type, int peer, void* handle, void* stream) {
  return add_call(handle, stream, call_of(Kind::receive, nullptr, receive, count, type, peer), "ncclRecv");
}

int ncclGroupStart() {
  ++group().depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (group().depth == 0) {
    violation("ncclGroupEnd without ncclGroupStart\n" + to_text(here()));
    return kInvalidUsage;
  }
  --group().depth;
  if (const int code = fault_code("ncclGroupEnd"); code != 0) {
    group() = {};
    return code;
  }
  const bool aborts = !group().aborts.empty();
  const int gpu = aborts                   ? group().aborts.front()->context->gpu
                  : !group().calls.empty() ? group().calls.front().communicator->context->gpu
                                           : -1;
  if (gpu < 0) return end_group("ncclGroupEnd");
  const Inside inside(gpu, "ncclGroupEnd", aborts);
  return end_group("ncclGroupEnd");
}

namespace {

struct Place {
  int ranks = 0, rank = 0;
  size_t bytes;  // of one part
};
Place place_of(void* handle, size_t count, int type) {
  Place place{.bytes = count * size_of(type)};
  ncclCommCount(handle, &place.ranks);
  ncclCommUserRank(handle, &place.rank);
  return place;
}
const char* part(const void* base, const Place& place, int peer) {
  return static_cast<const char*>(base) + place.bytes * static_cast<size_t>(peer);
}
char* part(void* base, const Place& place, int peer) {
  return static_cast<char*>(base) + place.bytes * static_cast<size_t>(peer);
}

}  // namespace

int ncclAlltoAll(const void* send, void* receive, size_t count, int type, void* handle, void* stream) {
  const Place place = place_of(handle, count, type);
  ncclGroupStart();
  for (int peer = 0; peer < place.ranks; ++peer) {
    ncclSend(part(send, place, peer), count, type, peer, handle, stream);
    ncclRecv(part(receive, place, peer), count, type, peer, handle, stream);
  }
  return ncclGroupEnd();
}

int ncclGather(const void* send, void* receive, size_t count, int type, int root, void* handle, void* stream) {
  const Place place = place_of(handle, count, type);
  ncclGroupStart();
  ncclSend(send, count, type, root, handle, stream);
  for (int peer = 0; place.rank == root && peer < place.ranks; ++peer)
    ncclRecv(part(receive, place, peer), count, type, peer, handle, stream);
  return ncclGroupEnd();
}

int ncclScatter(const void* send, void* receive, size_t count, int type, int root, void* handle, void* stream) {
  const Place place = place_of(handle, count, type);
  ncclGroupStart();
  for (int peer = 0; place.rank == root && peer < place.ranks; ++peer)
    ncclSend(part(send, place, peer), count, type, peer, handle, stream);
  ncclRecv(receive, count, type, root, handle, stream);
  return ncclGroupEnd();
}

int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, void* handle) {
  int result = 0;
  Communicator* communicator = use(handle, "ncclRedOpCreatePreMulSum", &result);
  if (communicator == nullptr) return result;
  if (residence != 1 || size_of(type) == 0) {  // 0, device memory, is read by the kernel: not needed so far
    set_last_error("stand-in: the factor must be in host memory");
    return kInvalidArgument;
  }
  Reduction reduction{.op = kSum, .scaled = true};
  std::memcpy(reduction.scale, scalar, size_of(type));
  const std::lock_guard lock(core().mutex);
  *op = kBuiltinOps;
  while (communicator->custom_ops.contains(*op)) ++*op;
  communicator->custom_ops[*op] = reduction;
  return kSuccess;
}

int ncclRedOpDestroy(int op, void* handle) {
  int result = 0;
  Communicator* communicator = use(handle, "ncclRedOpDestroy", &result);
  if (communicator == nullptr) return result;
  const std::lock_guard lock(core().mutex);
  return communicator->custom_ops.erase(op) == 1 ? kSuccess : kInvalidArgument;
}

int ncclMemAlloc(void** pointer, size_t bytes) {
  uint64_t address = 0;
  if (cuMemAlloc_v2(&address, bytes) != 0) return kCudaError;
  *pointer = reinterpret_cast<void*>(address);
  return kSuccess;
}
int ncclMemFree(void* pointer) { return cuMemFree_v2(address_of(pointer)) == 0 ? kSuccess : kCudaError; }

namespace {

int add_registered(const void* handle, void* pointer, size_t bytes, void** out, const char* call) {
  int result = 0;
  Communicator* communicator = use(handle, call, &result);
  if (communicator == nullptr) return result;
  const std::lock_guard lock(core().mutex);
  const auto found = find_range(address_of(pointer), bytes);
  if (found == nullptr || found->freed) return kInvalidArgument;
  ++found->registered;
  *out = new char;  // never freed: an identity
  communicator->registered[*out] = {address_of(pointer), bytes};
  return kSuccess;
}

int remove_registered(const void* handle, void* registered, const char* call) {
  int result = 0;
  Communicator* communicator = use(handle, call, &result);
  if (communicator == nullptr) return result;
  const std::lock_guard lock(core().mutex);
  const auto found = communicator->registered.find(registered);
  if (found == communicator->registered.end()) return kInvalidArgument;
  if (const auto memory = find_allocation(found->second.address)) --memory->registered;
  communicator->registered.erase(found);
  return kSuccess;
}

}  // namespace

int ncclCommRegister(const void* handle, void* pointer, size_t bytes, void** out) {
  return add_registered(handle, pointer, bytes, out, "ncclCommRegister");
}
int ncclCommDeregister(const void* handle, void* registered) {
  return remove_registered(handle, registered, "ncclCommDeregister");
}
int ncclCommWindowRegister(void* handle, void* pointer, size_t bytes, void** out, int) {
  return add_registered(handle, pointer, bytes, out, "ncclCommWindowRegister");
}
int ncclCommWindowDeregister(void* handle, void* window) {
  return remove_registered(handle, window, "ncclCommWindowDeregister");
}
