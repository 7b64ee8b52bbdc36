#include "transport/failure.h"

#include <algorithm>
#include <cstring>

#include "base/origin.h"
#include "base/relax.h"
#include "base/wire.h"

namespace hvd {

void Failure::set(const Status& status) {
  ControlBlock& control = *control_.block;
  uint32_t none = 0;
  if (control.failed.compare_exchange_strong(none, 1)) {
    control.failure_code = static_cast<int32_t>(status.code());
    size_t length = std::min(status.message().size(), sizeof control.failure_text - 1);
    std::memcpy(control.failure_text, status.message().data(), length);
    control.failure_text[length] = 0;
    Bytes origin;
    Encoder out(origin);
    encode(out, status.origin());
    control.failure_origin_size = static_cast<uint32_t>(std::min(origin.size(), sizeof control.failure_origin));
    std::memcpy(control.failure_origin, origin.data(), control.failure_origin_size);
    control.failed.store(2, std::memory_order_release);
  }
  bells_.ring_all();
}

Status Failure::get() const {
  if (!is_set()) return {};
  const ControlBlock& control = *control_.block;
  // The writer is between its two stores. If it died there, the text is lost but the failure is not.
  for (int i = 0; i < 1'000'000 && control.failed.load(std::memory_order_acquire) != 2; i++) relax();
  if (control.failed.load(std::memory_order_acquire) != 2) return {Code::peer_lost, "a rank died"};
  Decoder origin(ByteView(control.failure_origin, control.failure_origin_size));
  return {static_cast<Code>(control.failure_code), control.failure_text, decode_origin(origin)};
}

}  // namespace hvd
