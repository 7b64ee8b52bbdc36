// Runs plans on GPUs with NCCL. The thread that drives prepares a plan (opens the GPU, introduces the members of a new
// communicator to each other, reserves the fusion buffer) and hands it to the GPU thread, which makes all launches, in
// the order of the plans, looks for their end, and aborts. So no other thread is inside NCCL during an abort.
// Thread rule: as DeviceBackend says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/nccl/communicator.h"
#include "backends/nccl/gpu.h"
#include "backends/nccl/libraries.h"
#include "backends/nccl/nccl_job.h"

namespace hvd {

struct NcclSettings {
  int streams = 1;
  bool use_kernels = true;
  bool use_torus = false;
  size_t fusion_threshold = size_t{128} << 20;
  Duration operation_limit{};  // 0: none
  Duration warn_after{};       // about an operation that has not ended; 0: never
  Duration init_limit = std::chrono::seconds(120);
};

class NcclBackend final : public DeviceBackend {
 public:
  NcclBackend(BackendContext context, LibrarySearch libraries, const NcclSettings& settings);
  ~NcclBackend() override;

  std::string_view name() const override { return "nccl"; }
  std::string_view activity(Kind kind) const override;
  bool accepts(const Plan& plan) const override;
  void run(const Plan& plan, std::span<Operation* const> operations, Done done) override {
    run_on_device(plan, operations, nullptr, std::move(done));
  }

  void begin_call() override;
  Status on_submit(Operation& operation) override;
  void run_on_device(const Plan& plan, std::span<Operation* const> operations, std::function<void()> launched,
                     Done done) override;
  Status order_stream(const Operation& operation, void* stream) override;
  Result<std::byte*> allocate(Device device, size_t bytes) override;
  void set_join_device(Device device) override { join_device_ = device; }
  void forget(int32_t process_set) override;
  void give_up(const Status& status) override;
  bool is_idle() const override { return under_way_.load() == 0; }

 private:
  using Key = std::tuple<int32_t, uint32_t, int>;  // process set, number of the device map, stream

  // ---- any thread ----
  Result<Gpu*> gpu(Device ordinal);
  Status open();

  // ---- the thread that drives ----
  Result<Communicator*> communicator_for(const Plan& plan);
  Status introduce(Communicator& communicator, Device device);
  Status reserve(Communicator& communicator, size_t wanted);
  Device own_device(const Plan& plan) const;
  void hand_over(NcclJob job);
  Status adasum_between_hosts(const Plan& plan, const NcclJob& job);

  // ---- the GPU thread ----
  void work(const std::stop_token& stop);
  void start(NcclJob& job);
  Status launch(NcclJob& job);
  Status make(Communicator& communicator);
  Status split(Communicator& communicator);
  Status split_off(Communicator& communicator, int32_t color, int32_t key, NcclComm& part);
  Status settle(const Communicator& communicator, NcclComm comm, NcclResult result, const char* call,
                TimePoint deadline);
  std::string describe_error(const Gpu& gpu, NcclComm comm, NcclResult result) const;
  bool look_at_jobs();
  void look_for_errors();
  void finish(NcclJob& job, const Status& status);
  void fail_world(const Status& status);
  void abort_all();
  bool wait_for_streams(TimePoint deadline);
  Status end_communicators(int32_t process_set);
  void end_all();
  bool is_given_up() const { return given_up_.load(std::memory_order_acquire); }
  Status given_up_status() const;
  void record_activities(NcclJob& job) const;
  void warn_of_slow(NcclJob& job);
  void note_data(NcclJob& job) const;
  const Operation* missing_data(const NcclJob& job) const;
  void free_replaced();
  std::string describe(const NcclJob& job) const;

  const BackendContext context_;
  const LibrarySearch search_;
  const NcclSettings settings_;

  std::mutex open_mutex_;  // guards the next four; pointers stay valid
  std::unique_ptr<GpuLibraries> libraries_;
  Status open_error_;
  std::map<Device, std::shared_ptr<Gpu>> gpus_;
  std::map<Device, Status> gpu_errors_;  // those that could not be opened

  // Of the thread that drives.
  std::map<Key, std::unique_ptr<Communicator>> communicators_;
  std::map<int32_t, uint64_t> turns_;  // of the streams, by process set
  Device join_device_ = kHost;
  Device last_device_ = kHost;

  std::mutex nccl_mutex_;     // held during every call of NCCL
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<NcclJob> handed_over_;
  Status given_up_status_;
  std::atomic<bool> given_up_{false};
  std::atomic<int> under_way_{0};
  mutable std::mutex finished_mutex_;  // guards Operation::finished

  // Of the GPU thread.
  std::deque<NcclJob> in_flight_;
  std::vector<Communicator*> made_;      // in the order in which all ranks made them
  std::map<Gpu*, DeviceEventRef> last_;  // launch on a GPU, if there are several streams
  bool is_aborted_ = false;
  bool is_stuck_ = false;                            // the abort does not return, and a thread is still inside it
  std::vector<std::unique_ptr<Communicator>> left_;  // of removed process sets, if the world failed before their end
  bool has_failed_ = false;
  std::jthread thread_;
};

}  // namespace hvd
