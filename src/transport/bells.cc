#include "transport/bells.h"

#include <atomic>
#include <utility>

#include "base/bell.h"

namespace hvd {

void Bells::ring(int32_t rank) const { hvd::ring(bells_[static_cast<size_t>(rank)]); }

void Bells::ring_all() const {
  for (int32_t peer = 0; peer < control_.size; peer++) ring(peer);
}

void Bells::silence_mine() const { silence(bells_[static_cast<size_t>(control_.rank)]); }

// A message or flag was published earlier; the fence orders that before the check whether its reader sleeps. The reader
// does the opposite: it announces that it sleeps, then checks for messages. At least one of the two sees the other. An
// unread message stays owed: a reader that is driving may leave without checking again.
void Bells::ring_owed(Urgency urgency) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  messages_.each_behind([&](int32_t peer) { ring_reader(peer, urgency); });
  if (std::exchange(owes_data_, false)) ring_blocked();
}

void Bells::ring_reader(int32_t peer, Urgency urgency) const {
  RankBlock& reader = control_.of(peer);
  if (urgency == Urgency::leaving) reader.attention.store(1, std::memory_order_seq_cst);
  Activity activity = reader.activity.load(std::memory_order_seq_cst);
  if (activity == Activity::driving || (urgency == Urgency::patient && activity == Activity::paused)) return;
  ring(peer);
}

void Bells::ring_blocked() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control_.block->blocked.load(std::memory_order_relaxed) == 0) return;
  for (int32_t peer = 0; peer < control_.size; peer++) {
    if (peer == control_.rank) continue;
    if (control_.of(peer).activity.load(std::memory_order_relaxed) == Activity::blocked) ring(peer);
  }
}

}  // namespace hvd
