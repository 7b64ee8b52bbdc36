#include "negotiation/known_plans.h"

#include <utility>

#include "negotiation/signature.h"

namespace hvd {

KnownPlan* KnownPlans::find(const Request& request) {
  auto found = by_name_.find(NameView{gathering_set(request), request.name});
  if (found == by_name_.end()) return nullptr;
  KnownPlan& known = found->second;
  return known.device == request.device && same_signature(*known.request, request) ? &known : nullptr;
}

KnownPlan* KnownPlans::find(CacheId id) {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

void KnownPlans::add(CacheId id, AgreedRequest request, std::optional<Device> device) {
  NameKey key({gathering_set(*request), request->name});
  auto [place, is_new] = by_name_.try_emplace(std::move(key));
  KnownPlan& known = place->second;
  if (!is_new) by_id_.erase(known.id);
  known = {.id = id, .request = std::move(request), .device = device};
  by_id_.emplace(id, &known);
}

bool KnownPlans::erase(CacheId id) {
  auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  const Request& request = *found->second->request;
  auto place = by_name_.find(NameView{gathering_set(request), request.name});
  by_id_.erase(found);
  by_name_.erase(place);
  return true;
}

}  // namespace hvd
