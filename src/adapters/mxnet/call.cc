#include "adapters/mxnet/call.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "adapters/mxnet/mx_api.h"

namespace hvd::mxnet {
namespace {

std::atomic<int64_t> newest_world{0};

// The number of existing calls. Never destroyed: MXNet's threads may still run while the process exits.
struct InFlight {
  std::mutex mutex;
  std::condition_variable none_left;
  int64_t count = 0;  // guarded by mutex
};
InFlight& in_flight = *new InFlight;

// A reference to an MXNet array; the user's own may be gone when the engine runs the call.
class Array {
 public:
  explicit Array(NDArrayHandle handle) {
    if (api().ShallowCopyNDArray(handle, &handle_) != 0) throw std::runtime_error(api().GetLastError());
  }
  Array(Array&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Array& operator=(Array&&) = delete;
  ~Array() {
    if (handle_ != nullptr) api().NDArrayFree(handle_);
  }
  NDArrayHandle get() const { return handle_; }

  // The address of the elements, or an error. Does not use MXNDArrayGetData: for an array in a oneDNN layout it waits
  // for a conversion, which waits for this very call.
  std::optional<void*> data(std::string& problem) const {
    DLManagedTensor* view = nullptr;
    if (api().NDArrayToDLPack(handle_, &view) != 0) {
      problem = api().GetLastError();
      if (problem.find("Reorder2Default") != std::string::npos) {
        problem = "the array has a layout of oneDNN, which cannot be changed in place; use x[:] = hvd.allreduce(x)";
      }
      return std::nullopt;
    }
    void* data = static_cast<std::byte*>(view->tensor.data) + view->tensor.byte_offset;
    api().NDArrayCallDLPackDeleter(view);
    return data;
  }

 private:
  NDArrayHandle handle_ = nullptr;
};

// Same layout as dmlc::Error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

bool is_empty(const hvd_tensor& tensor) {
  for (int32_t i = 0; i < tensor.ndim; i++) {
    if (tensor.shape[i] == 0) return true;
  }
  return false;
}

bool writes_input(int32_t kind) { return kind == HVD_ALLREDUCE || kind == HVD_BROADCAST; }

class Call {
 public:
  Call(const hvd_request* requests, int32_t count, int64_t world, std::shared_ptr<Ticket> ticket);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  // Passes the call to MXNet.
  static void push(std::unique_ptr<Call> call, int32_t priority);

 private:
  struct Member {
    explicit Member(const hvd_request& request)
        : array(request.input.data),
          name(request.name),
          shape(request.input.shape, request.input.shape + request.input.ndim),
          splits(request.splits, request.splits + (request.splits != nullptr ? request.splits_count : 0)) {}
    Array array;
    std::string name;
    std::vector<int64_t> shape;
    std::vector<int32_t> splits;
  };

  void submit();
  void fail(hvd_code code, const std::string& text);
  void finish(hvd_code code, const std::string& text);
  std::string point_requests();

  static void on_run(void*, void* on_complete, void* param);
  static void on_done(void* context, hvd_handle handle, hvd_code code);

  std::vector<Member> members_;
  std::vector<hvd_request> requests_;
  std::shared_ptr<Ticket> ticket_;
  int64_t world_;
  OnComplete on_complete_{};
};

Call::Call(const hvd_request* requests, int32_t count, int64_t world, std::shared_ptr<Ticket> ticket)
    : requests_(requests, requests + count), ticket_(std::move(ticket)), world_(world) {
  int64_t newest = newest_world.load();
  while (newest < world && !newest_world.compare_exchange_weak(newest, world)) {
  }
  members_.reserve(requests_.size());
  for (const hvd_request& request : requests_) members_.emplace_back(request);
  std::lock_guard lock(in_flight.mutex);
  in_flight.count++;
}

Call::~Call() {
  // MXNet does not run a call whose arrays carry an earlier error; accessing them raises it.
  ticket_->refused(HVD_ABORTED, "an earlier operation on one of its arrays has failed");
  std::lock_guard lock(in_flight.mutex);
  if (--in_flight.count == 0) in_flight.none_left.notify_all();
}

void Call::push(std::unique_ptr<Call> call, int32_t priority) {
  std::vector<NDArrayHandle> read, written;
  for (size_t i = 0; i < call->members_.size(); i++) {
    auto& arrays = writes_input(call->requests_[i].kind) ? written : read;
    arrays.push_back(call->members_[i].array.get());
  }
  std::string name = call->members_.front().name;
  static constexpr FnProperty kProperty = kCpuPrioritized;
  // From here on MXNet owns the call, even if this fails: it wraps `param` first.
  int failed = api().EnginePushAsyncND(
      on_run, call.release(), [](void* param) { delete static_cast<Call*>(param); }, &kCpu, read.data(),
      static_cast<int>(read.size()), written.data(), static_cast<int>(written.size()), &kProperty, priority,
      name.c_str(), false);
  if (failed != 0) throw std::runtime_error(api().GetLastError());
}

std::string Call::point_requests() {
  static std::byte nothing[64];  // for arrays without elements
  for (size_t i = 0; i < requests_.size(); i++) {
    hvd_request& request = requests_[i];
    const Member& member = members_[i];
    request.name = member.name.c_str();
    request.input.shape = member.shape.data();
    request.splits = member.splits.empty() ? nullptr : member.splits.data();
    std::string problem;
    std::optional<void*> data = is_empty(request.input) ? nothing : member.array.data(problem);
    if (!data) return problem;
    request.input.data = *data;
    if (writes_input(request.kind)) {
      request.output = request.input;
    } else {
      request.output = {.struct_size = sizeof(hvd_tensor), .dtype = request.input.dtype, .device = HVD_HOST_DEVICE};
    }
  }
  return {};
}

void Call::on_run(void*, void* on_complete, void* param) {
  auto* call = static_cast<Call*>(param);
  call->on_complete_ = *static_cast<OnComplete*>(on_complete);
  try {
    call->submit();
  } catch (const std::exception& problem) {  // out of memory, before submission
    call->fail(HVD_UNKNOWN, problem.what());
  }
}

void Call::submit() {
  if (world_ < newest_world.load()) return fail(HVD_UNKNOWN, "it was started in a world that has ended");
  if (std::string problem = point_requests(); !problem.empty()) return fail(HVD_INVALID_ARGUMENT, problem);
  hvd_submit_options options{.struct_size = sizeof(hvd_submit_options), .done = &on_done, .done_context = this};
  std::shared_ptr<Ticket> ticket = ticket_;  // the call may be deleted before hvd_submit returns
  hvd_handle handle = 0;
  hvd_code code = hvd_submit(requests_.data(), static_cast<int32_t>(requests_.size()), &options, &handle);
  if (code != HVD_OK) return fail(code, hvd_last_error());
  ticket->submitted(handle);
}

void Call::on_done(void* context, hvd_handle handle, hvd_code code) {
  auto* call = static_cast<Call*>(context);
  call->ticket_->submitted(handle);
  std::string text;
  if (code != HVD_OK) {
    hvd_wait(handle, 0);  // it is done: this only fetches the text
    text = hvd_last_error();
  }
  call->finish(code, text);
}

void Call::fail(hvd_code code, const std::string& text) {
  ticket_->refused(code, text);
  finish(code, text);
}

// Notifies MXNet, which then deletes the call. A failure stays with the output arrays, and is raised when they are
// read. A failure that only the ticket has is raised by waiting for the ticket.
void Call::finish(hvd_code code, const std::string& text) {
  OnComplete told = on_complete_;
  if (code == HVD_OK || !writes_input(requests_.front().kind)) return told.callback(told.engine, told.param, nullptr);
  // The first word becomes the class of the exception in Python.
  const char* type = code == HVD_INVALID_ARGUMENT ? "MXNetError: " : "HorovodInternalError: ";
  Error error(type + members_.front().name + ": " + text);
  told.callback(told.engine, told.param, &error);
}

}  // namespace

std::string push(const hvd_request* requests, int32_t count, int32_t priority, int64_t world,
                 std::shared_ptr<Ticket> ticket) try {
  Call::push(std::make_unique<Call>(requests, count, world, std::move(ticket)), priority);
  return {};
} catch (const std::exception& problem) {
  return problem.what();
}

int64_t wait_all(double seconds) {
  std::unique_lock lock(in_flight.mutex);
  in_flight.none_left.wait_for(lock, std::chrono::duration<double>(seconds), [] { return in_flight.count == 0; });
  return in_flight.count;
}

}  // namespace hvd::mxnet
