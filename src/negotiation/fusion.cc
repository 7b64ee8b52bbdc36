#include "negotiation/fusion.h"

#include <algorithm>
#include <limits>

#include "negotiation/signature.h"

namespace hvd {
namespace {

struct OpenPlan {
  const FusionItem* first;
  uint32_t number;
  uint64_t room;
};

bool same_devices(const FusionItem& a, const FusionItem& b) {
  if (a.devices == b.devices) return true;
  return a.devices != nullptr && b.devices != nullptr && *a.devices == *b.devices;
}

bool matches(const FusionItem& a, const FusionItem& b, bool disable_group_fusion) {
  return can_share_plan(*a.request, *b.request) && same_devices(a, b) &&
         (!disable_group_fusion || a.request->group == b.request->group);
}

}  // namespace

uint64_t fused_bytes(const Request& request, int32_t set_size) {
  uint64_t bytes = bytes_of(request);
  if (request.kind != Kind::allgather) return bytes;
  uint64_t total = 0;
  bool too_large = __builtin_mul_overflow(bytes, static_cast<uint64_t>(set_size), &total);
  return too_large ? std::numeric_limits<uint64_t>::max() : total;
}

namespace {

// The plan each item belongs to; `sizes` gets the number of items of each plan.
std::vector<uint32_t> choose_plans(std::span<const FusionItem> items, const FusionSettings& settings,
                                   std::vector<uint32_t>& sizes) {
  uint64_t threshold = static_cast<uint64_t>(settings.threshold);
  std::vector<OpenPlan> open;  // plans with room left
  std::vector<uint32_t> plan_of;
  plan_of.reserve(items.size());
  auto start_plan = [&] {
    plan_of.push_back(static_cast<uint32_t>(sizes.size()));
    sizes.push_back(1);
  };
  for (const FusionItem& item : items) {
    if (item.alone || !is_fusible(*item.request) || item.bytes >= threshold) {
      start_plan();
      continue;
    }
    auto accepts = [&](const OpenPlan& plan) {
      return plan.room >= item.bytes && matches(*plan.first, item, settings.disable_group_fusion);
    };
    auto plan = std::find_if(open.begin(), open.end(), accepts);
    if (plan == open.end()) {
      start_plan();
      open.push_back({.first = &item, .number = plan_of.back(), .room = threshold - item.bytes});
      continue;
    }
    plan_of.push_back(plan->number);
    sizes[plan->number]++;
    plan->room -= item.bytes;
    if (plan->room == 0) open.erase(plan);
  }
  return plan_of;
}

}  // namespace

void fuse(std::span<const FusionItem> items, const FusionSettings& settings, FusedPlans& plans) {
  plans.order.assign(items.size(), 0);
  plans.ends.clear();
  if (items.size() == 1) {
    plans.ends.push_back(1);
    return;
  }
  std::vector<uint32_t> plan_of = choose_plans(items, settings, plans.ends);
  std::vector<uint32_t> next;  // where each plan's next item goes
  uint32_t total = 0;
  for (uint32_t& size : plans.ends) {
    next.push_back(total);
    size = total += size;
  }
  for (uint32_t i = 0; i < items.size(); i++) plans.order[next[plan_of[i]]++] = i;
}

}  // namespace hvd
