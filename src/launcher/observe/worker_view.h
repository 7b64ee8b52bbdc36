// What this machine's launcher or agent can see of one worker without its help: what it writes about itself, and its
// stacks, which signal handlers in it write. It stays readable when the worker is dead.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "observe/memory.h"
#include "observe/reader.h"

namespace hvd::launcher {

class WorkerView {
 public:
  static Result<WorkerView> create();

  // For the worker: what it has to inherit, and the variable's value.
  std::vector<int> kept() const { return {descriptors_.memory.get(), descriptors_.stacks.get()}; }
  std::string variable() const { return observe::descriptors_text(descriptors_); }

  bool has_content() const;  // it is a rank, or was one
  uint64_t stalls() const { return memory_->stalls.load(std::memory_order_acquire); }
  nlohmann::json metrics() const;
  std::vector<observe::Remembered> operations(size_t most) const;  // oldest first
  nlohmann::json shown(const observe::Remembered& operation) const;

  // The process that is the rank: the one that was started, or one below it, as under a shell.
  pid_t process_of(pid_t started) const;
  // Makes its threads write their stacks. They are complete when stacks_settled() says so, or too late.
  void ask_for_stacks(pid_t started);
  bool stacks_settled(TimePoint now);
  std::string stacks() const;

 private:
  WorkerView(observe::Descriptors descriptors, observe::Memory memory)
      : descriptors_(std::move(descriptors)), memory_(std::move(memory)) {}

  void ask_for_native();

  observe::Descriptors descriptors_;
  observe::Memory memory_;
  pid_t asked_pid_ = -1;
  bool is_native_ = false;  // the second part, which would mix with the first
  TimePoint asked_{}, grew_{};
  size_t size_ = 0;
};

// What the kernel says of a process: "sleeping", "stopped", "ended" and so on.
std::string process_state(pid_t pid);

}  // namespace hvd::launcher
