// A task: the content of one hvd_submit, one operation or a group of them with one handle. Tasks are reused, with the
// memory of their names and shapes, so that a steady state allocates nothing. Thread rule: see each field.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/operation.h"

namespace hvd {

struct Task {
  // An operation in flight; guarded by the mutex of the OperationTable.
  struct Place {
    Operation* operation = nullptr;
    Task* task = nullptr;
    size_t hash = 0;  // of process set and name
    // The driver has seen it. An unseen operation has not been announced, so no plan can refer to it.
    bool is_taken = false;
    Place* next = nullptr;
  };

  int64_t handle = 0;
  std::vector<Operation> operations;  // used by the driving thread until done, then by the caller
  std::function<void(const Task&)> on_done;
  Status status;  // written before `done`
  // A callback that was attached after submit. The thread that attaches it calls it if the task is over by then, else
  // the thread that ends the task does.
  enum class Listener : int32_t { none, being_attached, attached, over };
  std::function<void(const Task&)> late_listener;
  std::atomic<Listener> listener{Listener::none};
  std::atomic<bool> done{false};
  std::atomic<int32_t> launched{0};  // operations whose work is on a stream of their device

  std::vector<Place> places;  // of the operations, one by one
  int32_t unfinished = 0;     // guarded by the mutex of the OperationTable
  std::atomic<int32_t> references{0};
};

// One of the owners of a task; the last one returns it for reuse.
class TaskRef {
 public:
  TaskRef() = default;
  explicit TaskRef(Task* task) : task_(task) {
    if (task_ != nullptr) task_->references.fetch_add(1, std::memory_order_relaxed);
  }
  TaskRef(const TaskRef& other) : TaskRef(other.task_) {}
  TaskRef(TaskRef&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  // Adopts the reference that release() returned.
  static TaskRef adopt(Task* task) {
    TaskRef ref;
    ref.task_ = task;
    return ref;
  }
  [[nodiscard]] Task* release() { return std::exchange(task_, nullptr); }
  TaskRef& operator=(TaskRef other) noexcept {
    std::swap(task_, other.task_);
    return *this;
  }
  ~TaskRef() {
    if (task_ != nullptr && task_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) give_back(task_);
  }

  Task* get() const { return task_; }
  Task* operator->() const { return task_; }
  Task& operator*() const { return *task_; }
  explicit operator bool() const { return task_ != nullptr; }

 private:
  static void give_back(Task* task);

  Task* task_ = nullptr;
};

// A task with that many new operations. Tasks of one operation come from the spares of the calling thread, if it has
// some.
TaskRef make_task(size_t operations);

}  // namespace hvd
