// When two requests are equivalent: for the plan cache, or for tensors that one plan may fuse.
// Thread rule: plain functions.
#pragma once

#include <bit>
#include <cstdint>

#include "model/request.h"

namespace hvd {

// Factors are compared as bits, so that a NaN equals itself.
inline bool same_factor(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// All dimensions, or all but the first where ranks may differ in it.
bool same_shape(Kind kind, const Shape& a, const Shape& b);

// All fields except the first dimension of kinds whose rows may differ, and the device's ordinal: ranks use their own
// device, so only the placement (host or accelerator) must agree.
bool same_signature(const Request& a, const Request& b);

// Whether tensors of this kind can share a plan at all.
constexpr bool is_fusible(const Request& request) {
  return (request.kind == Kind::allreduce && request.reduce_op != ReduceOp::adasum) ||
         request.kind == Kind::allgather || request.kind == Kind::reducescatter;
}

// Same kind, dtype, device, reduce op, factors, root and process set: tensors.front() of a plan represents all.
bool can_share_plan(const Request& a, const Request& b);

}  // namespace hvd
