#include "engine/task.h"

#include <memory>

namespace hvd {
namespace {

constexpr size_t kMostSpares = 128;  // of a thread: as many as a burst of small tensors has in flight

// Each thread has its own: who submits usually releases as well, and needs no lock for it.
thread_local std::vector<std::unique_ptr<Task>> spares;

// Moves the memory of `used` to `fresh`, empty.
template <class Container>
void keep(Container& fresh, Container& used) {
  fresh.swap(used);
  fresh.clear();
}

// All fields are those of a new operation, also the ones that are added to it some day.
void renew(Operation& operation) {
  Operation fresh;
  keep(fresh.request.name, operation.request.name);
  keep(fresh.request.shape, operation.request.shape);
  keep(fresh.input.shape, operation.input.shape);
  keep(fresh.output.shape, operation.output.shape);
  keep(fresh.sent_rows, operation.sent_rows);
  keep(fresh.received_rows, operation.received_rows);
  operation = std::move(fresh);
}

}  // namespace

TaskRef make_task(size_t operations) {
  if (operations == 1 && !spares.empty()) {
    Task* task = spares.back().release();
    spares.pop_back();
    return TaskRef(task);
  }
  auto task = std::make_unique<Task>();
  task->operations.resize(operations);
  return TaskRef(task.release());
}

// Groups are rare and large: they are not kept.
void TaskRef::give_back(Task* task) {
  std::unique_ptr<Task> owner(task);
  if (task->operations.size() != 1 || spares.size() >= kMostSpares) return;
  renew(task->operations.front());
  task->handle = 0;
  task->on_done = nullptr;
  task->status = {};
  task->done.store(false, std::memory_order_relaxed);
  spares.push_back(std::move(owner));
}

}  // namespace hvd
