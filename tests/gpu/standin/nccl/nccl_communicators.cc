// Making and ending communicators.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/memory.h"
#include "nccl/nccl_call.h"

using namespace standin;
using namespace standin::nccl;

namespace standin::nccl {

int fault_code(const char* call) {
  const auto fault = fault_at(call);
  if (!fault || fault->fault != Fault::code) return 0;
  set_last_error("stand-in: fault in " + std::string(call));
  return fault->value;
}

SitePointer call_site(const char* call) {
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  return host_site(call, stack);
}

Communicator* use(const void* handle, const char* call, int* result) {
  *result = kInvalidArgument;
  if (handle == nullptr) return nullptr;
  const std::lock_guard lock(core().mutex);
  Communicator* communicator = find_communicator(handle);
  if (communicator == nullptr || communicator->ended) {
    violation(std::string(call) +
              (communicator == nullptr ? ": not a communicator\n" : ": the communicator has ended\n") +
              to_text(here()));
    return nullptr;
  }
  if (communicator->busy != nullptr) {
    violation(std::string(call) + " on " + communicator->name() + " while a call is in progress\n  in progress: " +
              to_text(*communicator->busy) + "  the call came from\n" + to_text(here()));
    *result = kInvalidUsage;
    return nullptr;
  }
  if (current_context() != communicator->context) {
    violation(std::string(call) + " on " + communicator->name() + ", but the current context is " +
              (current_context() == nullptr ? "none" : "of GPU " + std::to_string(current_context()->gpu)) + "\n" +
              to_text(here()));
    *result = kInvalidUsage;
    return nullptr;
  }
  *result = fault_code(call);
  if (*result == 0) *result = communicator->error;
  return *result == 0 ? communicator : nullptr;
}

}  // namespace standin::nccl

namespace {

bool blocking_of(const Config* config) {
  if (const char* text = std::getenv("NCCL_COMM_BLOCKING")) return std::atoi(text) != 0;
  return config == nullptr || config->blocking != 0;
}

// The library trusts `version` to say which fields there are; `size` bounds what it may read.
bool valid(const Config* config) {
  return config == nullptr || (config->magic == kConfigMagic && config->size >= offsetof(Config, split_share) &&
                               (config->blocking == 0 || config->blocking == 1 || config->blocking == kUndefined));
}

int connect_or_end(Communicator& communicator, const UniqueId& id, void** out) {
  const int result = connect(communicator, id, library_version());
  if (result != kSuccess && communicator.blocking) {
    end(communicator);
    *out = nullptr;
  }
  return result;
}

int start_group_of_one(std::function<int()> start) {
  group().starts.push_back(std::move(start));
  return end_group("ncclCommInit");
}

int init(void** out, int ranks, const UniqueId& id, int rank, const Config* config, const char* call) {
  static const bool listed = (at_exit_list(list_communicators), true);
  static_cast<void>(listed);
  if (const int code = fault_code(call); code != 0) return code;
  if (ranks < 1 || rank < 0 || rank >= ranks || !is_id(id) || !valid(config)) {
    set_last_error("Invalid rank, id or config");
    return kInvalidArgument;
  }
  if (current_context() == nullptr) {
    set_last_error("Cuda failure 'no current context'");
    return kCudaError;
  }
  count(&Counts::communicators);
  const SitePointer site = call_site(call);
  Communicator* made = nullptr;
  {
    const std::lock_guard lock(core().mutex);
    made = add_communicator(current_context(), site);
  }
  made->ranks = ranks;
  made->rank = rank;
  made->blocking = blocking_of(config);
  *out = made;
  if (settings().count_only) {
    made->ready = true;
    return made->blocking ? kSuccess : kInProgress;
  }
  if (made->blocking && group().depth == 0) {  // the only call that a peer's absence can hold up
    const Inside inside(made->context->gpu, call);
    return make_progress({made}, site, {}, [=] { return connect_or_end(*made, id, out); });
  }
  return start_group_of_one(
      [=] { return make_progress({made}, site, {}, [=] { return connect_or_end(*made, id, out); }); });
}

}  // namespace

int ncclGetVersion(int* version) {
  *version = library_version();
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  if (const int code = fault_code("ncclGetUniqueId"); code != 0) return code;
  *id = make_id();
  return kSuccess;
}

const char* ncclGetErrorString(int code) {
  static constexpr const char* kTexts[] = {"no error",
                                           "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                           "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                           "internal error - please report this issue to the NCCL developers",
                                           "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                           "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress",
                                           "NCCL operation timed out"};
  return code >= 0 && code < 9 ? kTexts[code] : "unknown result code";
}

const char* ncclGetLastError(void*) { return last_error(); }

int ncclCommInitRank(void** out, int ranks, UniqueId id, int rank) {
  return init(out, ranks, id, rank, nullptr, "ncclCommInitRank");
}
int ncclCommInitRankConfig(void** out, int ranks, UniqueId id, int rank, Config* config) {
  return init(out, ranks, id, rank, config, "ncclCommInitRankConfig");
}

int ncclCommGetAsyncError(void* handle, int* state) {
  const auto fault = fault_at("ncclCommGetAsyncError");
  const std::lock_guard lock(core().mutex);
  Communicator* communicator = find_communicator(handle);
  if (communicator == nullptr || communicator->ended) {
    violation("ncclCommGetAsyncError: not a communicator, or it has ended\n" + to_text(here()));
    return kInvalidArgument;
  }
  if (fault && fault->fault == Fault::async) communicator->error = fault->value;
  if (fault && fault->fault == Fault::code) return fault->value;
  *state = fault && fault->fault == Fault::busy ? int{kInProgress} : look_at_progress(*communicator);
  return kSuccess;
}

namespace {

int finalize(Communicator& communicator) {
  {
    std::unique_lock lock(core().mutex);
    core().changed.wait(lock, [&] { return communicator.pending == 0 || communicator.aborted; });
  }
  if (!communicator.aborted) say_bye(communicator);
  const std::lock_guard lock(core().mutex);
  communicator.finalized = true;
  return kSuccess;
}

}  // namespace

int ncclCommFinalize(void* handle) {
  int result = 0;
  Communicator* communicator = use(handle, "ncclCommFinalize", &result);
  if (communicator == nullptr) return result;
  const Inside inside(communicator->context->gpu, "ncclCommFinalize");
  if (settings().count_only) return kSuccess;
  const SitePointer site = call_site("ncclCommFinalize");
  group().starts.push_back(
      [=] { return make_progress({communicator}, site, {}, [=] { return finalize(*communicator); }); });
  return end_group("ncclCommFinalize");
}

int ncclCommDestroy(void* handle) {
  if (handle == nullptr) return kSuccess;
  if (const int code = fault_code("ncclCommDestroy"); code != 0) return code;
  Communicator* communicator = nullptr;
  {
    std::unique_lock lock(core().mutex);
    communicator = find_communicator(handle);
    if (communicator == nullptr || communicator->ended) {
      violation("ncclCommDestroy: not a communicator, or it has ended\n" + to_text(here()));
      return kInvalidArgument;
    }
  }
  if (settings().count_only) return communicator->ended = true, kSuccess;
  const Inside inside(communicator->context->gpu, "ncclCommDestroy");
  bool orderly = false;
  {
    std::unique_lock lock(core().mutex);
    wait_until_idle(*communicator, lock);
    orderly = communicator->ready && !communicator->finalized;
  }
  if (orderly) say_bye(*communicator);
  end(*communicator);
  return kSuccess;
}

int ncclCommAbort(void* handle) {
  if (handle == nullptr) return kSuccess;
  Communicator* communicator = nullptr;
  {
    std::unique_lock lock(core().mutex);
    communicator = find_communicator(handle);
    if (communicator == nullptr || communicator->ended) {
      violation("ncclCommAbort: not a communicator, or it has ended\n" + to_text(here()));
      return kInvalidArgument;
    }
  }
  if (settings().count_only) return communicator->ended = true, kSuccess;
  const Inside inside(communicator->context->gpu, "ncclCommAbort", true);
  if (const int code = fault_code("ncclCommAbort"); code != 0) return code;
  group().aborts.push_back(communicator);
  return end_group("ncclCommAbort");
}

namespace {

int read_of(const void* handle, int* value, int (*what)(const Communicator&)) {
  const std::lock_guard lock(core().mutex);
  const Communicator* communicator = find_communicator(handle);
  if (communicator == nullptr || communicator->ended) return kInvalidArgument;
  *value = what(*communicator);
  return kSuccess;
}

}  // namespace

int ncclCommCount(const void* handle, int* value) {
  return read_of(handle, value, [](const Communicator& one) { return one.ranks; });
}
int ncclCommUserRank(const void* handle, int* value) {
  return read_of(handle, value, [](const Communicator& one) { return one.rank; });
}
int ncclCommCuDevice(const void* handle, int* value) {
  return read_of(handle, value, [](const Communicator& one) { return one.context->gpu; });
}

namespace {

struct Place {
  int color, key, rank;
  UniqueId id;
};

// Makes the child from the places of all ranks of the parent that take part.
int split(Communicator& parent, Communicator* child, void** out, const Place& mine, const std::vector<bool>& left_out) {
  std::vector<std::string> blocks(static_cast<size_t>(parent.ranks));
  blocks[parent.rank] = std::string(reinterpret_cast<const char*>(&mine), sizeof mine);
  if (!gather_blocks(parent, blocks, left_out)) return kRemoteError;
  if (child == nullptr) return kSuccess;
  std::vector<Place> places;
  for (const std::string& block : blocks) {
    Place place{};
    if (block.size() != sizeof place) continue;
    std::memcpy(&place, block.data(), sizeof place);
    if (place.color == mine.color) places.push_back(place);
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
  child->ranks = static_cast<int>(places.size());
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].rank == mine.rank) child->rank = static_cast<int>(i);
  return connect_or_end(*child, places.front().id, out);
}

int start_split(void* handle, void** out, const Config* config, int color, int key, const std::vector<bool>& left_out,
                const char* call) {
  int result = 0;
  Communicator* parent = use(handle, call, &result);
  if (parent == nullptr) return result;
  const Inside inside(parent->context->gpu, call);
  const SitePointer site = call_site(call);
  Communicator* child = nullptr;
  {
    const std::lock_guard lock(core().mutex);
    if (parent->pending > 0)
      violation(std::string(call) + " of " + parent->name() + ", which has work: " + to_text(*site));
    if (color >= 0) child = add_communicator(parent->context, site);
  }
  *out = child;
  if (child != nullptr) child->blocking = config != nullptr ? blocking_of(config) : parent->blocking;
  std::vector<Communicator*> both{parent};
  if (child != nullptr) both.push_back(child);
  const Place mine{color, key, parent->rank, make_id()};
  auto skipped = left_out;
  skipped.resize(static_cast<size_t>(parent->ranks));
  group().starts.push_back(
      [=] { return make_progress(both, site, {}, [=] { return split(*parent, child, out, mine, skipped); }); });
  return end_group(call);
}

}  // namespace

int ncclCommSplit(void* handle, int color, int key, void** out, Config* config) {
  return start_split(handle, out, config, color, key, {}, "ncclCommSplit");
}

int ncclCommShrink(void* handle, int* excluded, int count, void** out, Config* config, int flags) {
  if (flags != 0) {
    set_last_error("stand-in: ncclCommShrink only of a parent in order");
    return kInvalidUsage;
  }
  std::vector<bool> left_out;
  for (int i = 0; i < count; ++i) {
    left_out.resize(std::max(left_out.size(), static_cast<size_t>(excluded[i]) + 1));
    left_out[excluded[i]] = true;
  }
  return start_split(handle, out, config, 0, 0, left_out, "ncclCommShrink");
}
