#include "adapters/mxnet/ticket.h"

#include <chrono>
#include <utility>

namespace hvd::mxnet {

Ticket::~Ticket() {
  if (handle_ != 0) hvd_release(handle_);
}

void Ticket::submitted(hvd_handle handle) {
  std::lock_guard lock(mutex_);
  handle_ = handle;
  changed_.notify_all();
}

void Ticket::refused(hvd_code code, std::string text) {
  std::lock_guard lock(mutex_);
  if (handle_ != 0 || code_ != HVD_OK) return;
  code_ = code;
  text_ = std::move(text);
  changed_.notify_all();
}

hvd_code Ticket::wait_submitted(double seconds, hvd_handle* handle) {
  std::unique_lock lock(mutex_);
  auto is_known = [this] { return handle_ != 0 || code_ != HVD_OK; };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), is_known)) return HVD_TIMED_OUT;
  *handle = handle_;
  return code_;
}

bool Ticket::is_done() {
  std::lock_guard lock(mutex_);
  return code_ != HVD_OK || (handle_ != 0 && hvd_poll(handle_) != 0);
}

}  // namespace hvd::mxnet
