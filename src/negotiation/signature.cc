#include "negotiation/signature.h"

#include <algorithm>

namespace hvd {

bool same_shape(Kind kind, const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  size_t first = rows_may_differ(kind) && !a.empty() ? 1 : 0;
  return std::equal(a.begin() + static_cast<ptrdiff_t>(first), a.end(), b.begin() + static_cast<ptrdiff_t>(first));
}

bool same_signature(const Request& a, const Request& b) {
  return a.kind == b.kind && a.reduce_op == b.reduce_op && a.dtype == b.dtype &&
         (a.device == kHost) == (b.device == kHost) && a.process_set == b.process_set && a.root_rank == b.root_rank &&
         same_factor(a.prescale, b.prescale) && same_factor(a.postscale, b.postscale) &&
         same_shape(a.kind, a.shape, b.shape) && a.ranks == b.ranks && a.group_size == b.group_size &&
         a.group == b.group && a.name == b.name;
}

bool can_share_plan(const Request& a, const Request& b) {
  return is_fusible(a) && a.kind == b.kind && a.reduce_op == b.reduce_op && a.dtype == b.dtype &&
         a.device == b.device && a.process_set == b.process_set && a.root_rank == b.root_rank &&
         same_factor(a.prescale, b.prescale) && same_factor(a.postscale, b.postscale);
}

}  // namespace hvd
