// The engine of one rank in one generation of a world: accepts operations, agrees with the other ranks on their order,
// executes them and reports completion. Built for one generation; the next one gets a new engine.
//
// Waiting threads do the work. Progress is one function; the thread that runs it *drives*. The engine thread drives
// while no thread waits; a thread in wait() drives itself, because handing over to a sleeping thread costs far more
// than a small collective. At most one thread drives at a time; other waiting threads sleep until their operation is
// done or it is their turn to drive.
//
// Thread rule: any thread, except where noted.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/agreement.h"
#include "engine/backend_list.h"
#include "engine/carried_allreduces.h"
#include "engine/executor.h"
#include "engine/operation_table.h"
#include "engine/process_set_table.h"
#include "engine/recorder.h"
#include "engine/tuner.h"
#include "engine/turn.h"
#include "engine/watch.h"
#include "model/config.h"
#include "model/world.h"
#include "observe/writer.h"
#include "rendezvous/world_meeting.h"
#include "transport/transport.h"

namespace hvd {

class Engine {
 public:
  // Creates the engine for ranks that have met. `make_polled`: creates the backend that is asked first, only for this
  // world. `observer` is told what happens, and outlives the engine; null: nobody is.
  static Result<std::unique_ptr<Engine>> create(const World& world, const Config& config, WorldGroup group,
                                                const MakePolled& make_polled = nullptr,
                                                observe::Writer* observer = nullptr);
  ~Engine();  // ends communication on all ranks, see shutdown()

  // Checks and queues the operations; several form a group. `wait_follows`: the caller is about to wait().
  Status submit(const TaskRef& task, bool wait_follows);
  Result<TaskRef> submit(std::vector<Operation> operations, std::function<void(const Task&)> on_done,
                         bool wait_follows);
  // Makes sure that a thread drives operations submitted with `wait_follows`. `not_at_once`: the caller will wait()
  // later, after other work. If the engine thread could only run on the core that this work needs, it stays asleep
  // until then, within limits: other ranks may need this rank before it waits.
  void wake_for_new(bool not_at_once = false);
  // Waits until done or `until`. True: done.
  bool wait(const TaskRef& task, TimePoint until);
  // The same until all its work is on streams of its device, or it is done.
  bool wait_launched(const TaskRef& task, TimePoint until);

  // For tensors on accelerators; see BackendList. The calling thread starts to submit: see DeviceBackend::begin_call().
  void attach_device(const BackendList::MakeDevice& make);
  DeviceBackend* device() const { return backends_->device(); }

  // Why this rank is about to leave; shutdown() tells its peers. Otherwise they only learn that it called shutdown.
  void set_departure(Origin origin);
  // Ends communication on all ranks, fails pending operations, and tells this rank's peers that it leaves. When it
  // returns, the memory of operations is no longer used. Takes a few seconds if other ranks do not answer, and as long
  // as the driver is inside a copy or a callback. Does nothing if already done. Not from a callback.
  void shutdown();
  bool is_driven_here() const;  // by the calling thread, which is then inside a callback

  const World& world() const { return world_; }
  const Config& config() const { return config_; }
  bool is_homogeneous() const { return is_homogeneous_; }
  const std::shared_ptr<OperationTable>& operations() const { return operations_; }  // outlives the engine
  const ProcessSetTable& process_sets() const { return *process_sets_; }
  const CarriedAllreduces* carried() const { return carried_.get(); }  // null: this world carries none
  Status start_timeline(const std::string& path, bool mark_cycles);
  Status stop_timeline();
  // Descriptors that a forked child must close.
  std::vector<int> descriptors() const;

 private:
  Engine(const World& world, const Config& config, observe::Writer* observer);
  Status open(WorldGroup group, const MakePolled& make_polled);
  Status make_executor(const MakePolled& make_polled);
  Status attach_mesh(WorldGroup& group);
  Result<Agreement::Node> make_node(WorldGroup& group);

  // ---- driving; see the class comment ----
  void run(const std::stop_token& stop);  // the engine thread
  template <class Done>
  bool wait_for(Done&& done, TimePoint until);
  template <class Done>
  void drive(Done&& done, TimePoint until);
  void stop_driving(bool waits);
  void answer_for_driver(const std::stop_token& stop);
  bool poll_for_a_while();
  bool progress();  // one round; true: there was work
  void apply(Decision& decision);
  // Not ok: after the task was submitted, another thread has joined or the process set was removed.
  Status check_again(const Task& task) const;
  void announce(const Task& task, bool is_alone);
  void refuse(Task& task, const Status& status);  // it fails here; the other ranks do not learn of it
  void execute(Plan&& plan);
  void end(const Status& status);  // no further agreement: fails pending operations and later ones
  Origin why_leaving() const;
  TimePoint sleep_until();
  TimePoint next_deadline(bool awaits = false) const;
  void on_done(Task& task);
  void on_launched();
  void take_last_turn();
  void note_step(const Plan& plan);
  std::string timeline_path(const std::string& path) const;

  const World world_;
  const Config config_;
  observe::Writer* const observer_;
  const bool has_spare_core_;
  const bool can_defer_;  // see wake_for_new()
  bool is_homogeneous_ = true;
  std::unique_ptr<Transport> transport_;
  const std::shared_ptr<OperationTable> operations_ = std::make_shared<OperationTable>(observer_);
  Recorder recorder_;
  std::unique_ptr<ProcessSetTable> process_sets_;
  std::unique_ptr<BackendList> backends_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<CarriedAllreduces> carried_;  // null: this world carries none
  std::unique_ptr<HostLinks> links_;            // of a host's leader, in worlds of several hosts

  // Used by the driving thread.
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<Tuner> tuner_;         // root only, while tuning
  std::vector<std::string> step_names_;  // names executed since the tuner's step began, sorted
  std::vector<Decision> decisions_;
  std::vector<Task*> taken_;
  bool shutdown_announced_ = false;
  bool join_announced_ = false;  // and this rank's join has not ended
  bool ended_ = false;
  bool driver_waits_ = false;  // the driver is in wait(), not the engine thread
  int polls_in_vain_ = 0;
  TimePoint waited_at_{};  // when the last driver in wait() left

  Turn turn_;                               // to drive
  std::atomic<bool> wake_pending_{false};   // the engine thread was woken and has not checked yet
  std::atomic<bool> bell_answered_{false};  // by the engine thread while another thread drove
  std::atomic<bool> engine_sleeps_{false};
  std::atomic<int64_t> deadline_{0};    // when a thread must drive even without an event; set by the last driver
  mutable std::mutex departure_mutex_;  // guards departure_
  Origin departure_{.kind = OriginKind::shutdown};
  std::atomic<bool> shutdown_wanted_{false};
  std::atomic<bool> leaves_alone_{false};  // end without the other ranks, which do not answer
  std::atomic<bool> gives_up_{false};      // on plans that a backend has not finished
  std::mutex shutdown_mutex_;              // one shutdown at a time
  bool is_shut_down_ = false;              // guarded by shutdown_mutex_
  std::atomic<bool> joined_{false};        // between the submission of a join and its end
  TaskRef ending_ = make_task(0);          // done once end() has run
  std::unique_ptr<Watch> watch_;           // null: not needed in this world
  std::jthread thread_;                    // last: it uses all of the above
};

}  // namespace hvd
