// libhorovod_mxnet.so: the functions for the Python package (python/horovod/mxnet/native.py has the same declarations).
// Functions that return a text return "" on success; it is valid until the thread's next call.
#include <exception>
#include <memory>
#include <string>

#include "adapters/mxnet/adopt.h"
#include "adapters/mxnet/call.h"
#include "adapters/mxnet/mx_api.h"

#define HVD_MXNET extern "C" __attribute__((visibility("default")))

namespace {

using TicketOwner = std::shared_ptr<hvd::mxnet::Ticket>;

template <class Function>
const char* text_of(Function function) {
  thread_local std::string text;
  try {
    text = function();
  } catch (const std::exception& problem) {
    text = problem.what();
  }
  return text.c_str();
}

}  // namespace

// `path`: the libmxnet.so that Python has loaded.
HVD_MXNET const char* hvd_mxnet_load(const char* path) {
  return text_of([&] { return hvd::mxnet::load_api(path); });
}

// See push() in call.h. Return the ticket with hvd_mxnet_forget.
HVD_MXNET const char* hvd_mxnet_push(const hvd_request* requests, int32_t count, int32_t priority, int64_t world,
                                     TicketOwner** ticket) {
  return text_of([&] {
    auto owner = std::make_unique<TicketOwner>(std::make_shared<hvd::mxnet::Ticket>());
    std::string problem = hvd::mxnet::push(requests, count, priority, world, *owner);
    if (problem.empty()) *ticket = owner.release();
    return problem;
  });
}

HVD_MXNET int32_t hvd_mxnet_wait_submitted(TicketOwner* ticket, double seconds, hvd_handle* handle) {
  return (*ticket)->wait_submitted(seconds, handle);
}

HVD_MXNET const char* hvd_mxnet_refusal(TicketOwner* ticket) { return (*ticket)->text(); }

HVD_MXNET int32_t hvd_mxnet_is_done(TicketOwner* ticket) { return (*ticket)->is_done() ? 1 : 0; }

HVD_MXNET void hvd_mxnet_forget(TicketOwner* ticket) { delete ticket; }

HVD_MXNET const char* hvd_mxnet_adopt(const hvd_tensor* tensor, void** array) {
  return text_of([&] { return hvd::mxnet::adopt(*tensor, array); });
}

HVD_MXNET int64_t hvd_mxnet_wait_all(double seconds) { return hvd::mxnet::wait_all(seconds); }
