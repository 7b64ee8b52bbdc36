#include "backends/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace hvd {
namespace {

struct NcclSymbol {
  void** slot;
  const char* name;
};

template <class Function>
NcclSymbol nccl_symbol(Function& slot, const char* name) {
  return {reinterpret_cast<void**>(&slot), name};
}

}  // namespace

Result<NcclApi> read_nccl_api(void* library) {
  NcclApi api;
  const std::array symbols{
      nccl_symbol(api.version, "ncclGetVersion"),
      nccl_symbol(api.unique_id, "ncclGetUniqueId"),
      nccl_symbol(api.error_text, "ncclGetErrorString"),
      nccl_symbol(api.last_error, "ncclGetLastError"),
      nccl_symbol(api.comm_init, "ncclCommInitRankConfig"),
      nccl_symbol(api.comm_split, "ncclCommSplit"),
      nccl_symbol(api.comm_state, "ncclCommGetAsyncError"),
      nccl_symbol(api.comm_finalize, "ncclCommFinalize"),
      nccl_symbol(api.comm_destroy, "ncclCommDestroy"),
      nccl_symbol(api.comm_abort, "ncclCommAbort"),
      nccl_symbol(api.all_reduce, "ncclAllReduce"),
      nccl_symbol(api.reduce, "ncclReduce"),
      nccl_symbol(api.broadcast, "ncclBroadcast"),
      nccl_symbol(api.reduce_scatter, "ncclReduceScatter"),
      nccl_symbol(api.all_gather, "ncclAllGather"),
      nccl_symbol(api.send, "ncclSend"),
      nccl_symbol(api.receive, "ncclRecv"),
      nccl_symbol(api.group_start, "ncclGroupStart"),
      nccl_symbol(api.group_end, "ncclGroupEnd"),
  };
  for (const NcclSymbol& each : symbols) {
    *each.slot = ::dlsym(library, each.name);
    if (*each.slot == nullptr) {
      return Status(Code::unknown, fmt::format("the NCCL library lacks {}: it is older than {}", each.name,
                                               nccl_version_text(kOldestNccl)));
    }
  }
  return api;
}

std::string NcclApi::describe(NcclResult result, NcclComm comm) const {
  const char* meaning = error_text(result);
  const char* last = last_error(comm);
  bool has_last = last != nullptr && *last != 0;
  return fmt::format("NCCL error {} ({}){}{}", static_cast<int>(result), meaning == nullptr ? "unknown" : meaning,
                     has_last ? ": " : "", has_last ? last : "");
}

std::string nccl_version_text(int code) {
  if (code < 10000) return fmt::format("{}.{}.{}", code / 1000, code % 1000 / 100, code % 100);
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

}  // namespace hvd
