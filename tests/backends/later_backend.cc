// A backend in a library of its own, as MPI and NCCL have: takes the plans of one device, hands them to a thread of its
// own and completes them later. Its "device" memory is host memory, and it knows sum of float32 only.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/backend.h"

namespace hvd {
namespace {

constexpr Device kMyDevice = 7;

class LaterBackend : public Backend {
 public:
  explicit LaterBackend(const BackendContext& context) : context_(context) {}
  ~LaterBackend() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  std::string_view name() const override { return "later"; }
  std::string_view activity(Kind) const override { return "LATER"; }
  bool accepts(const Plan& plan) const override {
    return plan.first().device == kMyDevice && plan.first().kind == Kind::allreduce;
  }
  void run(const Plan& plan, std::span<Operation* const> operations, Done done) override {
    Job job{.operations = {operations.begin(), operations.end()}, .gathered = {}, .done = std::move(done)};
    size_t ranks = context_.members(plan.first().process_set).size();
    for (Operation* operation : operations) {
      Bytes& all = job.gathered.emplace_back(operation->input.bytes() * ranks);
      Status status =
          context_.exchange(plan.first().process_set, {operation->input.data, operation->input.bytes()}, all.data());
      if (!status.ok()) return job.done(std::move(status));
    }
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_one();
  }

 private:
  struct Job {
    std::vector<Operation*> operations;
    std::vector<Bytes> gathered;
    Done done;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      for (size_t i = 0; i < job.operations.size(); i++) sum(*job.operations[i], job.gathered[i]);
      job.done({});
      lock.lock();
    }
  }

  static void sum(Operation& operation, const Bytes& all) {
    size_t count = operation.input.bytes() / sizeof(float);
    std::vector<float> result(count, 0.f), part(count);
    for (size_t at = 0; at < all.size() && count > 0; at += count * sizeof(float)) {
      std::memcpy(part.data(), all.data() + at, count * sizeof(float));
      for (size_t i = 0; i < count; i++) result[i] += part[i];
    }
    std::memcpy(operation.output.data, result.data(), count * sizeof(float));
  }

  BackendContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool stop_ = false;     // guarded by mutex_
  std::jthread thread_{[this] { work(); }};
};

}  // namespace
}  // namespace hvd

extern "C" __attribute__((visibility("default"))) hvd::Backend* hvd_backend_v1(const hvd::BackendContext& context) {
  return new hvd::LaterBackend(context);
}
