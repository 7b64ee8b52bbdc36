// The graph operations that move data, and what their kernels read from a node. Used by ops.cc (definitions) and
// call.cc (execution). Thread rule: plain data.
#pragma once

#include <string>
#include <vector>

#include "adapters/tensorflow/tf_api.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {

enum class Members { one, group, named_group };  // named: every tensor of the group has its own name

struct Verb {
  const char* op;  // as registered: HorovodAllreduce
  hvd_kind kind;
  Members members;
};

constexpr Verb kAllreduce{"HorovodAllreduce", HVD_ALLREDUCE, Members::one};
constexpr Verb kGroupedAllreduce{"HorovodGroupedAllreduce", HVD_ALLREDUCE, Members::group};
constexpr Verb kAllgather{"HorovodAllgather", HVD_ALLGATHER, Members::one};
constexpr Verb kGroupedAllgather{"HorovodGroupedAllgather", HVD_ALLGATHER, Members::group};
constexpr Verb kBroadcast{"HorovodBroadcast", HVD_BROADCAST, Members::one};
constexpr Verb kBroadcastInplace{"HorovodBroadcastInplace", HVD_BROADCAST, Members::named_group};
constexpr Verb kBroadcastInplaceResource{"HorovodBroadcastInplaceResource", HVD_BROADCAST, Members::named_group};
constexpr Verb kAlltoall{"HorovodAlltoall", HVD_ALLTOALL, Members::one};
constexpr Verb kReducescatter{"HorovodReducescatter", HVD_REDUCESCATTER, Members::one};
constexpr Verb kGroupedReducescatter{"HorovodGroupedReducescatter", HVD_REDUCESCATTER, Members::group};
constexpr Verb kJoin{"HorovodJoin", HVD_JOIN, Members::one};

// One node of a graph, or one cached eager operation.
struct Node {
  // Reads the attributes; reports errors to the construction, and then the node must not be used.
  static Node* create(const Verb& verb, TF_OpKernelConstruction* construction);

  // The name in the negotiation of tensor `index` of `count`. Iterations of a loop run concurrently, so their
  // operations need different names, the same on all ranks. TensorFlow runs at most ten iterations by default, and
  // reusing few names keeps the negotiation's cache effective.
  std::string wire_name(size_t index, size_t count, int64_t iteration) const;

  Verb verb;
  std::string name;
  std::vector<std::string> member_names;
  int32_t reduce_op = HVD_SUM;
  int32_t process_set = HVD_WORLD_SET;
  int32_t root_rank = -1;
  double prescale_factor = 1.0, postscale_factor = 1.0;
};

}  // namespace hvd::tensorflow
