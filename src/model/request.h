// A request: one rank wants this collective on this name. Plain data without buffers, so that it can travel.
// An Operation (operation.h) is a request with the local buffers. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"

namespace hvd {

enum class Rank : int32_t {};  // position in the world; set positions are plain ints
constexpr int32_t index_of(Rank rank) { return static_cast<int32_t>(rank); }

enum class Kind : uint8_t {
  allreduce,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
  join,
  add_process_set,     // collective over the world; Request::ranks names the members
  remove_process_set,  // collective over the world; Request::process_set is the one to remove
  reduce,              // to the root
  gather,              // to the root
  scatter,             // from the root
  transfer,            // one rank sends, another receives; on the pair of them (process_sets.h), root_rank is the sender
  probe,               // which rank has sent what nobody has received yet? On the pair of a rank with itself
};
inline constexpr Kind kLastKind = Kind::probe;

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

inline constexpr int32_t kWorldSet = 0;  // id of the process set that holds every rank

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
  std::vector<int32_t> ranks;  // add_process_set: sorted
  std::string group;           // not empty: becomes ready together with the other members of the group
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

// Has it tensors?
constexpr bool moves_data(Kind kind) {
  return kind <= Kind::reducescatter || (kind >= Kind::reduce && kind <= Kind::transfer);
}
// Does it add up tensors of the ranks?
constexpr bool reduces(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reducescatter || kind == Kind::reduce;
}
// Is one rank the source or the target of the data?
constexpr bool has_root(Kind kind) {
  return kind == Kind::broadcast || (kind >= Kind::reduce && kind <= Kind::transfer);
}
constexpr bool manages_sets(Kind kind) { return kind == Kind::add_process_set || kind == Kind::remove_process_set; }
// May this rank's first dimension differ from the others'?
constexpr bool rows_may_differ(Kind kind) {
  return kind == Kind::allgather || kind == Kind::alltoall || kind == Kind::gather;
}

}  // namespace hvd
