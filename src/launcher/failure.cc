#include "launcher/failure.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>

namespace hvd {
namespace {

// The word between the first quotes after `marker`.
std::string_view quoted_after(std::string_view line, std::string_view marker) {
  size_t at = line.find(marker);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + marker.size());
  size_t end = line.find('\'');
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end);
}

std::string hint_for_signal(const Failure& failure) {
  switch (failure.ended.ending.number) {
    case SIGKILL:
      if (failure.ended.out_of_memory)
        return "the kernel killed it because memory ran out: use a smaller batch, fewer processes on this host, or a "
               "higher memory limit";
      return fmt::format(
          "horovodrun did not send this SIGKILL; often it is the kernel when memory runs out (look at "
          "dmesg on {}), or a scheduler that enforces a limit",
          failure.host);
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE: return "the program crashed in native code; PYTHONFAULTHANDLER=1 shows where";
    default: return "";
  }
}

std::string hint_for_line(std::string_view line) {
  if (auto module = quoted_after(line, "ModuleNotFoundError: No module named '"); !module.empty())
    return fmt::format(
        "Python on this host does not find the module {}: is it installed there, and is it the same "
        "Python (virtual environment) as here?",
        module);
  if (line.find("CUDA out of memory") != std::string_view::npos) return "the GPU's memory ran out: use a smaller batch";
  if (line.find("MemoryError") != std::string_view::npos ||
      line.find("Cannot allocate memory") != std::string_view::npos)
    return "memory ran out: use a smaller batch or fewer processes on this host";
  if (line.find("Too many open files") != std::string_view::npos) return "raise the limit of open files: ulimit -n";
  if (line.find("No space left on device") != std::string_view::npos) return "a file system of this host is full";
  return "";
}

std::string hint_for_exit(int code) {
  if (code == 127) return "127 is how a shell says that a command was not found";
  if (code == 126) return "126 is how a shell says that a file cannot be executed";
  return "";
}

}  // namespace

const Failure& find_cause(const std::vector<Failure>& failures) {
  auto weight = [](const Failure& failure) { return static_cast<int>(failure.kind); };
  return *std::max_element(failures.begin(), failures.end(),
                           [&](const Failure& one, const Failure& other) { return weight(one) < weight(other); });
}

std::string describe(const Failure& failure, TimePoint began) {
  std::string when = fmt::format("{:.1f} s after the start", seconds_of(failure.when - began));
  std::string who = failure.who.empty() ? fmt::format("rank {}", failure.rank) : failure.who;
  switch (failure.kind) {
    case Failure::Kind::exit:
    case Failure::Kind::signal:
      return fmt::format("{} on {} failed: pid {}, {}, {}", who, failure.host, failure.pid,
                         describe(failure.ended.ending), when);
    case Failure::Kind::not_started:
      return fmt::format("{} on {} was not started: {}", who, failure.host, failure.reason);
    case Failure::Kind::host_stuck:
    case Failure::Kind::host_lost: return fmt::format("lost host {}: {}, {}", failure.host, failure.reason, when);
  }
  return "";
}

std::string hint_for(const Failure& failure, const std::vector<std::string_view>& lines) {
  switch (failure.kind) {
    case Failure::Kind::signal: return hint_for_signal(failure);
    case Failure::Kind::exit:
      for (auto line = lines.rbegin(); line != lines.rend(); ++line)
        if (std::string hint = hint_for_line(*line); !hint.empty()) return hint;
      return hint_for_exit(failure.ended.ending.number);
    case Failure::Kind::not_started:
      if (failure.reason.find("No such file or directory") != std::string::npos)
        return fmt::format("is it installed on {}, at the same place as here?", failure.host);
      return "";
    case Failure::Kind::host_stuck:
    case Failure::Kind::host_lost:
      return "the host, its network or the agent there is gone; what ran on it ends as soon as it notices";
  }
  return "";
}

}  // namespace hvd
