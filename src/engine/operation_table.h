// The operations of this rank that are not done, by (process set, name), the tasks the driver has not seen yet, and the
// handles callers hold. A task is owned by its handle until release(), and by the table while it is in flight.
// Thread rule: any thread, except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "engine/task.h"
#include "model/plan.h"

namespace hvd {

class OperationTable {
 public:
  // Gives the task a handle, takes in its names and queues it for take_new(). Fails, changing nothing, if one of the
  // names is in flight.
  Status add(const TaskRef& task);
  TaskRef find(int64_t handle) const;
  void release(int64_t handle);

  // The tasks added since the last call, in order; they stay valid while they are in flight. Returns how many
  // operations are in flight if there are any new ones. One caller at a time.
  bool has_new() const { return has_new_.load(std::memory_order_relaxed); }
  size_t take_new(std::vector<Task*>& tasks);

  // The operations of a plan, one for each tensor, among those that take_new() has returned; null: there is none.
  void find(const Plan& plan, std::vector<Task::Entry*>& found) const;
  Task::Entry* find(const Request& request) const;
  // The operations have come to an end. Appends the tasks of which it was the last one: they are done.
  void finish(std::span<Task::Entry* const> entries, const Status& status, std::vector<TaskRef>& done);
  // Ends everything in flight that no backend is running (it ends that itself, and its buffers must stay until then);
  // returns the tasks that are done by it.
  std::vector<TaskRef> finish_all(const Status& status);
  // Refuses every add() from now on.
  void close(const Status& status);
  Status why_closed() const;  // ok: it is not
  size_t in_flight() const;

 private:
  // A handle is the number of its slot, plus one, and how many the process had before it, in any table: a handle of a
  // world that is gone is not taken for one of the next.
  struct Slot {
    int64_t handle = 0;  // 0: free
    TaskRef task;
  };

  static size_t hash_of(int32_t process_set, std::string_view name);
  Task::Entry*& bucket(size_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  Task::Entry* find_entry(size_t hash, int32_t process_set, std::string_view name) const;
  Task::Entry* find_taken(const Request& request) const;
  void insert(Task::Entry& entry);
  void erase(Task::Entry& entry);
  void grow();
  const Slot* slot_of(int64_t handle) const;
  int64_t open_slot(const TaskRef& task);
  void finish_entry(Task::Entry& entry, const Status& status, std::vector<TaskRef>& done);

  mutable std::mutex mutex_;  // guards everything below
  std::vector<Task::Entry*> buckets_ = std::vector<Task::Entry*>(64);
  size_t in_flight_ = 0;
  std::vector<Task*> new_;
  std::atomic<bool> has_new_{false};  // is new_ not empty? changed under the mutex, read without
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  Status closed_;
};

}  // namespace hvd
