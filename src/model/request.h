// A request: one rank is ready for this collective on this name. Plain data without buffers, so it can be sent.
// An Operation (operation.h) is a request with the local buffers. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"

namespace hvd {

enum class Rank : int32_t {};  // rank in the world; positions in a set are plain ints
constexpr int32_t index_of(Rank rank) { return static_cast<int32_t>(rank); }

enum class Kind : uint8_t {
  allreduce,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
  join,
  add_process_set,     // collective over the world; Request::ranks are the members
  remove_process_set,  // collective over the world; Request::process_set is removed
};
inline constexpr Kind kLastKind = Kind::remove_process_set;

enum class ReduceOp : uint8_t { average = 0, sum = 1, adasum = 2, min = 3, max = 4, product = 5 };
inline constexpr ReduceOp kLastReduceOp = ReduceOp::product;

using Device = int32_t;  // kHost, or the ordinal of an accelerator
inline constexpr Device kHost = -1;

inline constexpr int32_t kWorldSet = 0;  // id of the process set of all ranks

using Shape = std::vector<int64_t>;

struct Request {
  std::string name;
  Kind kind = Kind::allreduce;
  ReduceOp reduce_op = ReduceOp::sum;
  DType dtype = DType::f32;
  Device device = kHost;
  int32_t process_set = kWorldSet;
  int32_t root_rank = -1;  // broadcast: a rank of the world
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;                 // this rank's; the first dimension may differ in allgather and alltoall
  std::vector<int32_t> ranks;  // add_process_set: sorted
  std::string group;           // not empty: the request becomes ready together with the other members of the group
  uint32_t group_size = 0;

  bool operator==(const Request&) const = default;
};

std::string_view name_of(Kind kind);          // "allreduce"
std::string_view timeline_name(Kind kind);    // "ALLREDUCE"
std::string_view name_of(ReduceOp op);        // "sum"
std::string text_of(const Shape& shape);      // "[2, 3]"
int64_t elements_of(const Shape& shape);      // product; 1 for a scalar
int64_t row_elements_of(const Shape& shape);  // product of all dimensions but the first
size_t bytes_of(const Request& request);

// Whether this rank's first dimension may differ from that of other ranks.
constexpr bool rows_may_differ(Kind kind) { return kind == Kind::allgather || kind == Kind::alltoall; }

}  // namespace hvd
