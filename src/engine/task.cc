#include "engine/task.h"

#include <memory>

namespace hvd {
namespace {

constexpr size_t kMostSpares = 1024;  // per thread: the number that a model of small tensors has in flight

// Each thread has its own: the thread that submits usually releases as well, and needs no lock for it. They are freed
// at the end of the thread; a task that is returned later is freed directly.
constinit thread_local bool spares_are_gone = false;
struct Spares {
  std::vector<std::unique_ptr<Task>> tasks;
  ~Spares() { spares_are_gone = true; }
};
thread_local Spares spares;

// Resets all fields to those of a new operation, including fields added later; these keep their memory.
void renew(Operation& operation) {
  std::string name = std::move(operation.request.name);
  Shape shape = std::move(operation.request.shape), in = std::move(operation.input.shape),
        out = std::move(operation.output.shape);
  std::destroy_at(&operation);
  std::construct_at(&operation);
  name.clear(), shape.clear(), in.clear(), out.clear();
  operation.request.name = std::move(name);
  operation.request.shape = std::move(shape);
  operation.input.shape = std::move(in);
  operation.output.shape = std::move(out);
}

}  // namespace

TaskRef make_task(size_t operations) {
  if (operations == 1 && !spares_are_gone && !spares.tasks.empty()) {
    Task* task = spares.tasks.back().release();
    spares.tasks.pop_back();
    return TaskRef(task);
  }
  auto task = std::make_unique<Task>();
  task->operations.resize(operations);
  return TaskRef(task.release());
}

// Groups are rare and large: they are not reused.
void TaskRef::give_back(Task* task) {
  std::unique_ptr<Task> owner(task);
  if (task->operations.size() != 1 || spares_are_gone || spares.tasks.size() >= kMostSpares) return;
  renew(task->operations.front());
  task->handle = 0;
  task->on_done = nullptr;
  task->late_listener = nullptr;
  task->listener.store(Task::Listener::none, std::memory_order_relaxed);
  task->status = {};
  task->done.store(false, std::memory_order_relaxed);
  task->launched.store(0, std::memory_order_relaxed);
  spares.tasks.push_back(std::move(owner));
}

}  // namespace hvd
