// What Python keeps of an operation: its state, and the engine's handle once there is one.
//
// Shared by the call, which writes it, and Python, which may drop it at any time: the last owner releases the handle.
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "horovod/horovod.h"

namespace hvd::mxnet {

class Ticket {
 public:
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

  void submitted(hvd_handle handle);
  void refused(hvd_code code, std::string text);  // it was not submitted, and will not be

  // HVD_OK and the handle when the operation is submitted; the error code if it was rejected; HVD_TIMED_OUT.
  hvd_code wait_submitted(double seconds, hvd_handle* handle);
  bool is_done();
  const char* text() const { return text_.c_str(); }  // after an error of wait_submitted

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  hvd_handle handle_ = 0;  // these three are guarded by mutex_
  hvd_code code_ = HVD_OK;
  std::string text_;
};

}  // namespace hvd::mxnet
