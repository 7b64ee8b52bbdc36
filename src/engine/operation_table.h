// This rank's unfinished operations, by (process set, name), the tasks that the driver has not seen yet, and the
// callers' handles. A task is owned by its handle until release(), and by the table while it is in flight. Thread rule:
// any thread, except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "engine/task.h"
#include "model/plan.h"
#include "observe/writer.h"

namespace hvd {

class OperationTable {
 public:
  // `observer` is told of every operation and outlives this; null: nobody is. It sees one call at a time.
  explicit OperationTable(observe::Writer* observer = nullptr) : observer_(observer) {}

  // Gives the task a handle, adds its names and queues it for take_new(). If one of the names is in flight, fails
  // without changes.
  Status add(const TaskRef& task);
  TaskRef find(int64_t handle) const;
  void release(int64_t handle);

  // The tasks added since the last call, in order; they stay valid while they are in flight. If there are new ones,
  // returns the number of operations in flight. One caller at a time.
  bool has_new() const { return has_new_.load(std::memory_order_relaxed); }
  size_t take_new(std::vector<Task*>& tasks);

  // The operations of a plan, one per tensor, among those that take_new() has returned; null: there is none.
  void find(const Plan& plan, std::vector<Task::Place*>& found) const;
  Task::Place* find(const Request& request) const;
  // Ends the operations. Appends the tasks of which the last operation has ended: they are done.
  void finish(std::span<Task::Place* const> places, const Status& status, std::vector<TaskRef>& done);
  // Ends everything in flight, except what a backend is running (the backend ends that, and the buffers must stay until
  // then); returns the tasks that are then done.
  std::vector<TaskRef> finish_all(const Status& status);
  // Rejects every add() from now on.
  void close(const Status& status);
  Status why_closed() const;  // ok: not closed
  size_t in_flight() const;

 private:
  // A handle is the number of its slot plus one, and a count of handles in this process, over all tables: a handle of
  // an earlier world is never valid in a later one.
  struct Slot {
    int64_t handle = 0;  // 0: free
    TaskRef task;
  };

  static size_t hash_of(int32_t process_set, std::string_view name);
  Task::Place*& bucket(size_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  Task::Place* find_place(size_t hash, int32_t process_set, std::string_view name) const;
  Task::Place* find_taken(const Request& request) const;
  void insert(Task::Place& place);
  void erase(Task::Place& place);
  void grow();
  const Slot* slot_of(int64_t handle) const;
  int64_t open_slot(const TaskRef& task);
  void finish_place(Task::Place& place, const Status& status, int64_t now, std::vector<TaskRef>& done);
  int64_t now() const { return observer_ == nullptr ? 0 : observer_->now(); }

  observe::Writer* const observer_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<Task::Place*> buckets_ = std::vector<Task::Place*>(64);
  size_t in_flight_ = 0;
  std::vector<Task*> new_;
  std::atomic<bool> has_new_{false};  // whether new_ is not empty; changed with the mutex, read without
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  Status closed_;
};

}  // namespace hvd
