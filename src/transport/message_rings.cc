#include "transport/message_rings.h"

#include <algorithm>
#include <utility>

namespace hvd {

MessageRings::MessageRings(ControlView control, std::function<void(int32_t)> on_broken)
    : control_(control), on_broken_(std::move(on_broken)), up_(static_cast<size_t>(control.size)) {}

std::span<MessageLine> MessageRings::my_ring() const {
  if (control_.is_root()) return control_.block->down_ring;
  return control_.mine().up_ring;
}

uint64_t MessageRings::slowest_reader() const {
  if (!control_.is_root()) return control_.block->up_read[control_.rank].value.load(std::memory_order_acquire);
  uint64_t slowest = UINT64_MAX;
  for (int32_t peer = 1; peer < control_.size; peer++) {
    slowest = std::min(slowest, control_.of(peer).down_read.value.load(std::memory_order_acquire));
  }
  return slowest;
}

void MessageRings::send(ByteView message) {
  if (control_.size == 1) return;
  append_frame(unsent_, message);
  flush();
}

bool MessageRings::flush() {
  if (unsent_.empty()) return true;
  std::span<MessageLine> ring = my_ring();
  ByteView lines = ByteView(unsent_).subspan(unsent_sent_);
  // The readers' positions are loaded only if the last known ones leave no room.
  if (written_ + lines.size() / kLineBytes > slowest_known_ + ring.size()) slowest_known_ = slowest_reader();
  size_t count = put(ring, written_, slowest_known_, lines);
  if (count == 0) return false;
  written_ += count;
  owed_ = true;
  unsent_sent_ += count * kLineBytes;
  if (unsent_sent_ < unsent_.size()) return false;
  unsent_.clear();
  unsent_sent_ = 0;
  return true;
}

bool MessageRings::receive_up(int32_t from, ByteView& message) {
  Reader& reader = up_[static_cast<size_t>(from)];
  uint64_t before = reader.read;
  bool complete = reader.frame.take(control_.of(from).up_ring, reader.read, message);
  if (reader.read != before) control_.block->up_read[from].value.store(reader.read, std::memory_order_release);
  if (reader.frame.broken()) on_broken_(from);
  return complete;
}

bool MessageRings::receive_down(ByteView& message) {
  uint64_t before = down_.read;
  bool complete = down_.frame.take(control_.block->down_ring, down_.read, message);
  if (down_.read != before) control_.mine().down_read.value.store(down_.read, std::memory_order_release);
  if (down_.frame.broken()) on_broken_(0);
  return complete;
}

bool MessageRings::is_unread() const {
  return !control_.is_root() &&
         control_.block->up_read[control_.rank].value.load(std::memory_order_relaxed) != written_;
}

bool MessageRings::has_incoming() const {
  if (!control_.is_root()) return has_line(control_.block->down_ring, down_.read);
  for (int32_t peer = 1; peer < control_.size; peer++) {
    if (has_line(control_.of(peer).up_ring, up_[static_cast<size_t>(peer)].read)) return true;
  }
  return false;
}

}  // namespace hvd
