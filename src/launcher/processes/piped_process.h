// A program that is not a worker, such as ssh: its stdin and stdout as one connection, and its output on stderr.
// Thread rule: one thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/processes/poll_set.h"
#include "launcher/processes/process.h"

namespace hvd::launcher {

class PipedProcess {
 public:
  // Its pid is in `strangers` while it runs.
  static Result<PipedProcess> start(const std::vector<std::string>& command, std::set<pid_t>& strangers);
  // A query: stdin is empty, and the conversation can only be read.
  static Result<PipedProcess> ask(const std::vector<std::string>& command, std::set<pid_t>& strangers);
  PipedProcess(PipedProcess&&) = default;
  PipedProcess& operator=(PipedProcess&&) = default;

  const UniqueFd& conversation() const { return conversation_; }
  UniqueFd take_conversation() { return std::move(conversation_); }
  void add_to(PollSet& set);                         // reads stderr
  const std::string& said() const { return said_; }  // the last part of its stderr
  void on_reaped(pid_t pid, int status);
  const std::optional<Ending>& ending() const { return ending_; }
  bool is_over() const { return ending_ && !err_; }  // ended, and all its output has been read
  void kill() const;

 private:
  PipedProcess(Child child, std::set<pid_t>& strangers)
      : pid_(child.pid),
        conversation_(std::move(child.in ? child.in : child.out)),
        err_(std::move(child.err)),
        strangers_(&strangers) {}
  static Result<PipedProcess> run(const std::vector<std::string>& command, std::set<pid_t>& strangers, bool converse);
  bool read_said();  // false: there is nothing to read at the moment

  pid_t pid_;
  UniqueFd conversation_, err_;
  std::string said_;
  std::optional<Ending> ending_;
  std::set<pid_t>* strangers_;
};

}  // namespace hvd::launcher
