#include "launcher/processes/piped_process.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace hvd::launcher {
namespace {

constexpr size_t kMostSaid = 16 << 10;

// Without secrets: keys that horovod.run or an outer job has put into ours. A worker gets them in another way.
std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char* const* entry = environ; *entry; ++entry)
    if (!std::string_view(*entry).starts_with("_HOROVOD_")) all.emplace_back(*entry);
  return all;
}

}  // namespace

Result<PipedProcess> PipedProcess::start(const std::vector<std::string>& command, std::set<pid_t>& strangers) {
  return run(command, strangers, true);
}

Result<PipedProcess> PipedProcess::ask(const std::vector<std::string>& command, std::set<pid_t>& strangers) {
  return run(command, strangers, false);
}

Result<PipedProcess> PipedProcess::run(const std::vector<std::string>& command, std::set<pid_t>& strangers,
                                       bool converse) {
  auto child =
      spawn({.command = command, .environment = own_environment(), .directory = {}, .cpus = {}, .converse = converse});
  if (!child.ok()) return child.status();
  strangers.insert(child->pid);
  return PipedProcess(std::move(*child), strangers);
}

void PipedProcess::add_to(PollSet& set) {
  if (err_) set.add(err_.get(), POLLIN, [this] { read_said(); });
}

bool PipedProcess::read_said() {
  std::array<char, 4096> buffer;
  ssize_t count = ::read(err_.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EAGAIN) return false;
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) {
    err_ = UniqueFd();
    return false;
  }
  said_.append(buffer.data(), static_cast<size_t>(count));
  if (said_.size() > 2 * kMostSaid) said_.erase(0, said_.size() - kMostSaid);
  return true;
}

void PipedProcess::on_reaped(pid_t pid, int status) {
  if (pid != pid_ || ending_) return;
  ending_ = ending_of(status);
  strangers_->erase(pid_);
  // Read only what is in the pipe now: a background process of ssh may hold it open.
  while (err_ && read_said()) {
  }
  err_ = UniqueFd();
}

void PipedProcess::kill() const {
  if (!ending_) ::kill(-pid_, SIGKILL);
}

}  // namespace hvd::launcher
