// NCCL, or RCCL, as a table of functions that are looked up at run time: own declarations of what is used, so that no
// header is needed to build. All exist since NCCL 2.18. Thread rule: the table is constant once it is filled.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "backends/nccl/cuda_api.h"
#include "base/status.h"

namespace hvd {

using NcclComm = struct NcclCommRecord*;
struct NcclId {
  char internal[128];
};

// Right for every version from 2.18 on: `version` names this layout, not the library.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48);

enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};
enum class NcclType : int { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16 };
enum class NcclOp : int { sum, product, max, min, average };

inline constexpr int kOldestNccl = 21801;

struct NcclApi {
  NcclResult (*version)(int* version) = nullptr;
  NcclResult (*unique_id)(NcclId* id) = nullptr;
  const char* (*error_text)(NcclResult result) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;  // comm may be null
  NcclResult (*comm_init)(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) = nullptr;
  NcclResult (*comm_split)(NcclComm comm, int color, int key, NcclComm* part, NcclConfig* config) = nullptr;
  NcclResult (*comm_state)(NcclComm comm, NcclResult* state) = nullptr;
  NcclResult (*comm_finalize)(NcclComm comm) = nullptr;
  NcclResult (*comm_destroy)(NcclComm comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm comm) = nullptr;
  NcclResult (*all_reduce)(const void* send, void* receive, size_t count, NcclType type, NcclOp op, NcclComm comm,
                           CudaStream stream) = nullptr;
  NcclResult (*reduce)(const void* send, void* receive, size_t count, NcclType type, NcclOp op, int root, NcclComm comm,
                       CudaStream stream) = nullptr;
  NcclResult (*broadcast)(const void* send, void* receive, size_t count, NcclType type, int root, NcclComm comm,
                          CudaStream stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* send, void* receive, size_t receive_count, NcclType type, NcclOp op,
                               NcclComm comm, CudaStream stream) = nullptr;
  NcclResult (*all_gather)(const void* send, void* receive, size_t send_count, NcclType type, NcclComm comm,
                           CudaStream stream) = nullptr;
  NcclResult (*send)(const void* data, size_t count, NcclType type, int peer, NcclComm comm,
                     CudaStream stream) = nullptr;
  NcclResult (*receive)(void* data, size_t count, NcclType type, int peer, NcclComm comm, CudaStream stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;

  // The library's own last text, which says what happened; that of the code does not.
  std::string describe(NcclResult result, NcclComm comm) const;
};

// Fills the table from an open library (dlopen). Not ok: names what is missing.
Result<NcclApi> read_nccl_api(void* library);

// 22705 as "2.27.5".
std::string nccl_version_text(int code);
// Major and minor, which all ranks of a communicator have to share.
constexpr int nccl_release(int code) { return code / 100; }

}  // namespace hvd
