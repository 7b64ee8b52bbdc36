#include "engine/operation_table.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

namespace hvd {
namespace {

constexpr int kSlotBits = 24;  // more handles at a time than anybody holds
constexpr int64_t kMostSlots = (int64_t{1} << kSlotBits) - 1;
constexpr int64_t kMostTurns = int64_t{1} << (62 - kSlotBits);

}  // namespace

size_t OperationTable::hash_of(int32_t process_set, std::string_view name) {
  return std::hash<std::string_view>()(name) ^ static_cast<size_t>(process_set) * 0x9e3779b97f4a7c15ull;
}

// ---- the names in flight: chains through the entries of the tasks ----

Task::Entry* OperationTable::find_entry(size_t hash, int32_t process_set, std::string_view name) const {
  for (Task::Entry* entry = buckets_[hash & (buckets_.size() - 1)]; entry != nullptr; entry = entry->next) {
    const Request& request = entry->operation->request;
    if (entry->hash == hash && request.process_set == process_set && request.name == name) return entry;
  }
  return nullptr;
}

Task::Entry* OperationTable::find_taken(const Request& request) const {
  Task::Entry* entry = find_entry(hash_of(request.process_set, request.name), request.process_set, request.name);
  return entry != nullptr && entry->is_taken ? entry : nullptr;
}

void OperationTable::insert(Task::Entry& entry) {
  if (in_flight_ == buckets_.size()) grow();
  Task::Entry*& first = bucket(entry.hash);
  entry.next = std::exchange(first, &entry);
  in_flight_++;
}

void OperationTable::erase(Task::Entry& entry) {
  Task::Entry** link = &bucket(entry.hash);
  while (*link != &entry) link = &(*link)->next;
  *link = entry.next;
  in_flight_--;
}

void OperationTable::grow() {
  std::vector<Task::Entry*> old(buckets_.size() * 2);
  old.swap(buckets_);
  for (Task::Entry* entry : old) {
    while (entry != nullptr) {
      Task::Entry* next = entry->next;
      Task::Entry*& first = bucket(entry->hash);
      entry->next = std::exchange(first, entry);
      entry = next;
    }
  }
}

// ---- handles ----

const OperationTable::Slot* OperationTable::slot_of(int64_t handle) const {
  size_t index = static_cast<size_t>(handle & kMostSlots);
  bool is_open = handle > 0 && index >= 1 && index <= slots_.size() && slots_[index - 1].handle == handle;
  return is_open ? &slots_[index - 1] : nullptr;
}

int64_t OperationTable::open_slot(const TaskRef& task) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  static std::atomic<int64_t> turns = 0;
  int64_t turn = (turns.fetch_add(1, std::memory_order_relaxed) + 1) % kMostTurns;
  slots_[index] = {.handle = turn << kSlotBits | (index + 1), .task = task};
  return slots_[index].handle;
}

TaskRef OperationTable::find(int64_t handle) const {
  std::lock_guard lock(mutex_);
  const Slot* slot = slot_of(handle);
  return slot == nullptr ? TaskRef() : slot->task;
}

void OperationTable::release(int64_t handle) {
  TaskRef task;  // given back after the lock is gone
  std::lock_guard lock(mutex_);
  const Slot* slot = slot_of(handle);
  if (slot == nullptr) return;
  size_t index = static_cast<size_t>(slot - slots_.data());
  task = std::move(slots_[index].task);
  slots_[index].handle = 0;
  free_slots_.push_back(static_cast<uint32_t>(index));
}

// ---- tasks ----

Status OperationTable::add(const TaskRef& task) {
  std::vector<Operation>& operations = task->operations;
  task->entries.resize(operations.size());
  for (size_t i = 0; i < operations.size(); i++) {
    const Request& request = operations[i].request;
    task->entries[i] = {
        .operation = &operations[i], .task = task.get(), .hash = hash_of(request.process_set, request.name)};
  }
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  if (free_slots_.empty() && slots_.size() >= kMostSlots) {
    return {Code::invalid_argument, "too many handles are held; call hvd_release for those that are done"};
  }
  for (size_t i = 0; i < operations.size(); i++) {
    const Request& request = operations[i].request;
    if (find_entry(task->entries[i].hash, request.process_set, request.name) == nullptr) {
      insert(task->entries[i]);
      continue;
    }
    while (i > 0) erase(task->entries[--i]);
    return {
        Code::invalid_argument,
        fmt::format("an operation with the name {} is already in flight; give each operation its own name, or wait for "
                    "the first to finish",
                    request.name)};
  }
  task->handle = open_slot(task);
  task->unfinished = static_cast<int32_t>(operations.size());
  new_.push_back(TaskRef(task).release());  // finish() adopts it
  has_new_.store(true, std::memory_order_release);
  return {};
}

size_t OperationTable::take_new(std::vector<Task*>& tasks) {
  tasks.clear();
  if (!has_new()) return 0;
  std::lock_guard lock(mutex_);
  tasks.swap(new_);
  for (Task* task : tasks) {
    for (Task::Entry& entry : task->entries) entry.is_taken = true;
  }
  has_new_.store(false, std::memory_order_relaxed);
  return in_flight_;
}

void OperationTable::find(const Plan& plan, std::vector<Task::Entry*>& found) const {
  std::lock_guard lock(mutex_);
  for (const AgreedRequest& request : plan.tensors) found.push_back(find_taken(*request));
}

Task::Entry* OperationTable::find(const Request& request) const {
  std::lock_guard lock(mutex_);
  return find_taken(request);
}

void OperationTable::finish_entry(Task::Entry& entry, const Status& status, std::vector<TaskRef>& done) {
  erase(entry);
  Task& task = *entry.task;
  if (task.status.ok()) task.status = status;
  entry.operation->status = status;
  if (--task.unfinished == 0) done.push_back(TaskRef::adopt(&task));
}

void OperationTable::finish(std::span<Task::Entry* const> entries, const Status& status, std::vector<TaskRef>& done) {
  std::lock_guard lock(mutex_);
  for (Task::Entry* entry : entries) finish_entry(*entry, status, done);
}

std::vector<TaskRef> OperationTable::finish_all(const Status& status) {
  std::lock_guard lock(mutex_);
  std::vector<Task::Entry*> ending;
  for (Task::Entry* entry : buckets_) {
    for (; entry != nullptr; entry = entry->next) {
      if (!entry->operation->running) ending.push_back(entry);
    }
  }
  std::vector<TaskRef> done;
  for (Task::Entry* entry : ending) finish_entry(*entry, status, done);
  new_.clear();  // they are among those
  has_new_.store(false, std::memory_order_relaxed);
  return done;
}

Status OperationTable::why_closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

void OperationTable::close(const Status& status) {
  std::lock_guard lock(mutex_);
  closed_ = status;
}

size_t OperationTable::in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_;
}

}  // namespace hvd
