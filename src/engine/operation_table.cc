#include "engine/operation_table.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

namespace hvd {
namespace {

constexpr int kSlotBits = 24;  // more simultaneous handles than any caller holds
constexpr int64_t kMostSlots = (int64_t{1} << kSlotBits) - 1;
constexpr int64_t kMostTurns = int64_t{1} << (62 - kSlotBits);

}  // namespace

size_t OperationTable::hash_of(int32_t process_set, std::string_view name) {
  return std::hash<std::string_view>()(name) ^ static_cast<size_t>(process_set) * 0x9e3779b97f4a7c15ull;
}

// ---- the names in flight: chains through the tasks ----

Task::Place* OperationTable::find_place(size_t hash, int32_t process_set, std::string_view name) const {
  for (Task::Place* place = buckets_[hash & (buckets_.size() - 1)]; place != nullptr; place = place->next) {
    const Request& request = place->operation->request;
    if (place->hash == hash && request.process_set == process_set && request.name == name) return place;
  }
  return nullptr;
}

Task::Place* OperationTable::find_taken(const Request& request) const {
  Task::Place* place = find_place(hash_of(request.process_set, request.name), request.process_set, request.name);
  return place != nullptr && place->is_taken ? place : nullptr;
}

void OperationTable::insert(Task::Place& place) {
  if (in_flight_ == buckets_.size()) grow();
  Task::Place*& first = bucket(place.hash);
  place.next = std::exchange(first, &place);
  in_flight_++;
}

void OperationTable::erase(Task::Place& place) {
  Task::Place** link = &bucket(place.hash);
  while (*link != &place) link = &(*link)->next;
  *link = place.next;
  in_flight_--;
}

void OperationTable::grow() {
  std::vector<Task::Place*> old(buckets_.size() * 2);
  old.swap(buckets_);
  for (Task::Place* place : old) {
    while (place != nullptr) {
      Task::Place* next = place->next;
      Task::Place*& first = bucket(place->hash);
      place->next = std::exchange(first, place);
      place = next;
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
  TaskRef task;  // released after the lock
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
  task->places.resize(operations.size());
  for (size_t i = 0; i < operations.size(); i++) {
    const Request& request = operations[i].request;
    task->places[i] = {
        .operation = &operations[i], .task = task.get(), .hash = hash_of(request.process_set, request.name)};
  }
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  if (free_slots_.empty() && slots_.size() >= kMostSlots) {
    return {Code::invalid_argument, "too many handles are in use; call hvd_release for finished ones"};
  }
  for (size_t i = 0; i < operations.size(); i++) {
    const Request& request = operations[i].request;
    if (find_place(task->places[i].hash, request.process_set, request.name) == nullptr) {
      insert(task->places[i]);
      continue;
    }
    while (i > 0) erase(task->places[--i]);
    return {
        Code::invalid_argument,
        fmt::format("an operation with the name {} is already in flight; give each operation its own name, or wait for "
                    "the first to finish",
                    request.name)};
  }
  if (observer_ != nullptr) {
    for (Task::Place& place : task->places) place.record = observer_->on_submit(*place.operation, in_flight_);
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
    for (Task::Place& place : task->places) place.is_taken = true;
  }
  has_new_.store(false, std::memory_order_relaxed);
  return in_flight_;
}

void OperationTable::find(const Plan& plan, std::vector<Task::Place*>& found) const {
  std::lock_guard lock(mutex_);
  for (const AgreedRequest& request : plan.tensors) found.push_back(find_taken(*request));
  if (observer_ == nullptr) return;
  observe::Writer::Agreed agreed = observer_->on_plan(plan.tensors.size());
  for (Task::Place* place : found) {
    if (place != nullptr) observer_->on_agreed(agreed, place->record, *place->operation);
  }
}

Task::Place* OperationTable::find(const Request& request) const {
  std::lock_guard lock(mutex_);
  return find_taken(request);
}

void OperationTable::finish_place(Task::Place& place, const Status& status, int64_t now, std::vector<TaskRef>& done) {
  erase(place);
  if (observer_ != nullptr) observer_->on_done(place.record, *place.operation, status.ok(), now);
  Task& task = *place.task;
  if (task.status.ok()) task.status = status;
  place.operation->status = status;
  if (--task.unfinished == 0) done.push_back(TaskRef::adopt(&task));
}

void OperationTable::finish(std::span<Task::Place* const> places, const Status& status, std::vector<TaskRef>& done) {
  std::lock_guard lock(mutex_);
  int64_t when = now();
  for (Task::Place* place : places) finish_place(*place, status, when, done);
}

std::vector<TaskRef> OperationTable::finish_all(const Status& status) {
  std::lock_guard lock(mutex_);
  std::vector<Task::Place*> ending;
  for (Task::Place* place : buckets_) {
    for (; place != nullptr; place = place->next) {
      if (!place->operation->running) ending.push_back(place);
    }
  }
  std::vector<TaskRef> done;
  int64_t when = now();
  for (Task::Place* place : ending) finish_place(*place, status, when, done);
  new_.clear();  // also part of that list
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
