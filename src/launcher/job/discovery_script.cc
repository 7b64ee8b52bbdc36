#include "launcher/job/discovery_script.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr size_t kMostOutput = 4 << 20, kMostErrors = 4 << 10;  // the rest is read and dropped
constexpr int kNotStarted = 127;                                // as a shell would report it

std::vector<std::string> environment_strings() {
  std::vector<std::string> strings;
  for (char** entry = environ; *entry != nullptr; ++entry) strings.emplace_back(*entry);
  return strings;
}

}  // namespace

void DiscoveryScript::add_to(PollSet& set) {
  if (is_stopped_) return;
  set.wake_at(discovery_.next_timer());
  if (!child_) return;
  if (child_->out) set.add(child_->out.get(), POLLIN, [this] { read(child_->out, output_, kMostOutput); });
  if (child_->err) set.add(child_->err.get(), POLLIN, [this] { read(child_->err, errors_, kMostErrors); });
}

DiscoveryScript::News DiscoveryScript::look() {
  if (!is_stopped_) {
    switch (discovery_.next_step(Clock::now(), news_.said)) {
      case elastic::Discovery::Step::nothing: break;
      case elastic::Discovery::Step::start: start(); break;
      case elastic::Discovery::Step::kill:
        if (child_) ::kill(-child_->pid, SIGKILL);
        break;
    }
  }
  return std::exchange(news_, {});
}

void DiscoveryScript::start() {
  output_.clear();
  errors_.clear();
  auto child = spawn({.command = {"/bin/sh", "-c", script_}, .environment = environment_strings()});
  if (!child.ok()) return finish({.code = kNotStarted, .errors = std::string(child.status().message())});
  child_ = std::move(*child);
}

// Background processes of the script may hold the pipes open for longer. Do not wait for those.
void DiscoveryScript::on_reaped(pid_t pid, int status) {
  if (!child_ || child_->pid != pid) return;
  read_all();
  child_.reset();
  Ending ending = ending_of(status);
  finish({.code = ending.signalled ? 0 : ending.number,
          .signal = ending.signalled ? ending.number : 0,
          .output = std::move(output_),
          .errors = std::move(errors_)});
}

void DiscoveryScript::finish(const elastic::Discovery::Run& run) {
  if (is_stopped_) return;
  elastic::Discovery::Outcome outcome = discovery_.ended(run, Clock::now());
  if (outcome.hosts) news_.hosts.push_back(std::move(*outcome.hosts));
  news_.said.insert(news_.said.end(), outcome.said.begin(), outcome.said.end());
  if (!outcome.status.ok()) news_.status = std::move(outcome.status);
}

void DiscoveryScript::read_all() {
  for (size_t before = SIZE_MAX; child_->out && before != output_.size();) {
    before = output_.size();
    read(child_->out, output_, kMostOutput);
  }
  if (child_->err) read(child_->err, errors_, kMostErrors);
}

void DiscoveryScript::read(UniqueFd& fd, std::string& into, size_t most) {
  std::array<char, 64 << 10> buffer;
  ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count > 0) into.append(buffer.data(), std::min(static_cast<size_t>(count), most - std::min(most, into.size())));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) fd = UniqueFd();
}

void DiscoveryScript::stop() {
  is_stopped_ = true;
  if (child_) ::kill(-child_->pid, SIGKILL);
}

}  // namespace hvd::launcher
