#include "transport/heartbeats.h"

#include <fmt/core.h>

#include "base/origin.h"

namespace hvd {
namespace {

constexpr uint64_t kHasLeft = UINT64_MAX;  // instead of a number of beats

}  // namespace

void Heartbeats::beat() { control_.mine().beats.value.fetch_add(1, std::memory_order_relaxed); }
void Heartbeats::stop() { control_.mine().beats.value.store(kHasLeft, std::memory_order_relaxed); }

Status Heartbeats::find_silent(TimePoint now, Duration limit) {
  bool was_away = now - looked_at_ > limit / 2;
  looked_at_ = now;
  for (int32_t peer = 0; peer < control_.size; peer++) {
    Pulse& pulse = pulses_[static_cast<size_t>(peer)];
    uint64_t beats = control_.of(peer).beats.value.load(std::memory_order_relaxed);
    if (peer == control_.rank || was_away || beats != pulse.beats || beats == kHasLeft) pulse = {beats, now};
    if (now - pulse.changed < limit) continue;
    int32_t rank = group_.world_rank(peer);
    return {Code::peer_lost,
            fmt::format("{} is lost: silent for {:.1f} s", group_.name_of(rank), seconds_of(now - pulse.changed)),
            group_.origin_of(OriginKind::silent, rank)};
  }
  return {};
}

}  // namespace hvd
