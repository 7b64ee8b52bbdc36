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
  reduce,              // to the root
  gather,              // to the root
  scatter,             // from the root
  transfer,            // from one rank to another; its set is the pair (process_sets.h), root_rank is the sender
  probe,               // finds the sender of a message that has no receive yet; its set is the rank with itself
  form_process_set,    // like add_process_set, but submitted by the members (Request::ranks) only
  leave_process_set,   // of the members of Request::process_set, which is removed when all have submitted this
};
inline constexpr Kind kLastKind = Kind::leave_process_set;

enum class ReduceOp : uint8_t {
  average = 0,
  sum = 1,
  adasum = 2,
  min = 3,
  max = 4,
  product = 5,
  bit_and = 6,
  bit_or = 7,
  bit_xor = 8,
};
inline constexpr ReduceOp kLastReduceOp = ReduceOp::bit_xor;

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
  int32_t root_rank = -1;  // of kinds with a root: a rank of the world
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;                 // this rank's; the first dimension may differ, see rows_may_differ()
  std::vector<int32_t> ranks;  // add_process_set, form_process_set: sorted
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

// Whether it has tensors.
constexpr bool moves_data(Kind kind) {
  return kind <= Kind::reducescatter || (kind >= Kind::reduce && kind <= Kind::transfer);
}
// Whether it combines tensors of the ranks by a ReduceOp.
constexpr bool reduces(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reducescatter || kind == Kind::reduce;
}
// Whether one rank is the source or the target of the data.
constexpr bool has_root(Kind kind) {
  return kind == Kind::broadcast || (kind >= Kind::reduce && kind <= Kind::transfer);
}
constexpr bool adds_set(Kind kind) { return kind == Kind::add_process_set || kind == Kind::form_process_set; }
constexpr bool removes_set(Kind kind) { return kind == Kind::remove_process_set || kind == Kind::leave_process_set; }
constexpr bool manages_sets(Kind kind) { return adds_set(kind) || removes_set(kind); }
// Whether this rank's first dimension may differ from that of other ranks.
constexpr bool rows_may_differ(Kind kind) {
  return kind == Kind::allgather || kind == Kind::alltoall || kind == Kind::gather;
}

}  // namespace hvd
