#include "launcher/workers/failure.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/joined.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostRanks = 16;  // in one list

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
          "horovodrun did not send this SIGKILL; often the kernel sends it when memory runs out (check "
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
        "Python on this host cannot find the module {}: is it installed there, and is it the same "
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

std::string hint_for_told(const Origin& origin) {
  switch (origin.kind) {
    case OriginKind::silent: return "it was stopped, or its host is overloaded or unreachable";
    case OriginKind::exit:
    case OriginKind::shutdown:
      return "other ranks were not done yet: does every rank run the same number of steps? hvd.join() lets finished "
             "ranks wait";
    case OriginKind::none:
    case OriginKind::exception:
    case OriginKind::signal:
    case OriginKind::lost:
    case OriginKind::internal:
    case OriginKind::deadline: return "";
  }
  return "";
}

// The failure of the rank that this one has lost: its own, that of its host, or the one that this rank reported.
Failure origin_of(const Failure& consequence, const std::vector<Failure>& failures) {
  const Failure* at = &consequence;
  for (size_t steps = 0; steps < failures.size() && at->is_consequence(); steps++) {
    const Origin& origin = at->report->origin;
    auto same_rank = [&](const Failure& one) { return one.rank == origin.rank && (one.pid > 0 || one.report); };
    auto same_host = [&](const Failure& one) {
      return one.kind == Failure::Kind::host_lost && one.host == origin.host;
    };
    auto found = std::find_if(failures.begin(), failures.end(), same_rank);
    if (found == failures.end()) found = std::find_if(failures.begin(), failures.end(), same_host);
    if (found == failures.end()) {
      return {.kind = Failure::Kind::told,
              .host = origin.host,
              .rank = origin.rank,
              .pid = static_cast<pid_t>(origin.pid),
              .report = EndReport{.rank = origin.rank, .origin = origin},
              .when = at->when};
    }
    at = &*found;
  }
  return *at;
}

std::string hint_for_exit(int code) {
  if (code == 127) return "exit code 127 usually means that a command was not found";
  if (code == 126) return "exit code 126 usually means that a file cannot be executed";
  return "";
}

}  // namespace

Failure find_cause(const std::vector<Failure>& failures) {
  auto named = std::find_if(failures.begin(), failures.end(), [](const Failure& one) { return one.is_consequence(); });
  if (named != failures.end()) return origin_of(*named, failures);
  auto weight = [](const Failure& failure) { return static_cast<int>(failure.kind); };
  return *std::max_element(failures.begin(), failures.end(),
                           [&](const Failure& one, const Failure& other) { return weight(one) < weight(other); });
}

int awaited_rank(const EndReport& report) {
  OriginKind kind = report.origin.kind;
  if (!report.is_consequence() && kind != OriginKind::exception) return -1;
  // A rank that is stopped or hangs does not end on its own.
  return kind == OriginKind::silent || kind == OriginKind::deadline ? -1 : report.origin.rank;
}

std::string own_words(const std::optional<EndReport>& report) {
  bool says_more = report && !report->is_consequence() && report->origin.kind == OriginKind::exception;
  return says_more ? describe(report->origin) : "";
}

void tell_caller(const Failure& cause) {
  const char* name = ::getenv(kReportVariable);
  int pipe = name == nullptr ? -1 : open_report_pipe(name);
  if (pipe < 0) return;
  Origin origin = cause.report ? cause.report->origin : Origin{.kind = OriginKind::exit};
  if (cause.kind == Failure::Kind::signal) origin.kind = OriginKind::signal;
  origin.rank = cause.rank;
  origin.host = cause.host;
  origin.pid = cause.pid;
  write_report(pipe, {.rank = cause.rank, .origin = std::move(origin)});
}

std::string name_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  std::string text = "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostRanks); i++) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kMostRanks) text += fmt::format(" and {} more", ranks.size() - kMostRanks);
  return text;
}

std::string ranks_text(size_t count) { return count == 1 ? "1 rank" : fmt::format("{} ranks", count); }

std::string describe(const std::vector<Aftermath>& after, const Failure& cause) {
  std::map<int, std::vector<int>> losses;
  std::map<std::string, std::vector<int>> words;
  std::map<std::string, size_t> endings;
  for (const Aftermath& one : after) {
    if (one.rank == cause.rank) continue;
    std::string own = own_words(one.report);
    if (one.report && one.report->is_consequence()) {
      losses[one.report->origin.rank].push_back(one.rank);
    } else if (!own.empty()) {
      words[own].push_back(one.rank);
    } else if (one.ending) {
      endings[describe(*one.ending)]++;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [rank, who] : losses)
    parts.push_back(
        fmt::format("{} lost {}", name_ranks(who), rank == cause.rank ? "it" : fmt::format("rank {}", rank)));
  for (const auto& [text, who] : words)
    parts.push_back(fmt::format("{} {}", name_ranks(who), text == own_words(cause.report) ? "raised the same" : text));
  for (const auto& [ending, count] : endings) parts.push_back(fmt::format("{} {}", ranks_text(count), ending));
  return parts.empty() ? "" : fmt::format("After that: {}.\n", joined(parts, ", "));
}

Failure cause_in(const std::vector<EndReport>& reports) {
  std::vector<Failure> failures;
  for (const EndReport& report : reports) {
    Failure failure{.kind = Failure::Kind::told, .rank = report.rank, .report = report};
    if (!report.is_consequence()) {
      failure.host = report.origin.host;
      failure.pid = static_cast<pid_t>(report.origin.pid);
    }
    failures.push_back(std::move(failure));
  }
  return find_cause(failures);
}

std::string summary_of(const std::vector<EndReport>& reports) {
  if (reports.empty()) return "";
  Failure cause = cause_in(reports);
  if (cause.rank < 0) cause.who = "a process";
  std::string text = fmt::format("horovodrun: {}\n", describe(cause, TimePoint()));
  if (std::string hint = hint_for(cause, {}); !hint.empty()) text += fmt::format("Hint: {}.\n", hint);
  std::vector<Aftermath> after;
  for (const EndReport& report : reports) after.push_back({.rank = report.rank, .report = report});
  return text + describe(after, cause);
}

std::string describe(const Failure& failure, TimePoint began) {
  std::string when;
  if (failure.when != kNever) when = fmt::format(", {:.1f} s after the start", seconds_of(failure.when - began));
  std::string who = failure.who.empty() ? fmt::format("rank {}", failure.rank) : failure.who;
  switch (failure.kind) {
    case Failure::Kind::exit:
    case Failure::Kind::signal:
      return fmt::format("{} on {} failed: pid {}, {}{}", who, failure.host, failure.pid,
                         describe(failure.ended.ending), when);
    case Failure::Kind::told:
      return fmt::format("{} on {} {}: pid {}{}", who, failure.host, describe(failure.report->origin), failure.pid,
                         when);
    case Failure::Kind::not_started:
      return fmt::format("{} on {} was not started: {}", who, failure.host, failure.reason);
    case Failure::Kind::host_stuck:
    case Failure::Kind::host_lost: return fmt::format("lost host {}: {}{}", failure.host, failure.reason, when);
  }
  return "";
}

std::string hint_for(const Failure& failure, const std::vector<std::string_view>& lines) {
  switch (failure.kind) {
    case Failure::Kind::signal: return hint_for_signal(failure);
    case Failure::Kind::told: return hint_for_told(failure.report->origin);
    case Failure::Kind::exit:
      for (auto line = lines.rbegin(); line != lines.rend(); ++line)
        if (std::string hint = hint_for_line(*line); !hint.empty()) return hint;
      return hint_for_exit(failure.ended.ending.number);
    case Failure::Kind::not_started:
      if (failure.reason.find("No such file or directory") != std::string::npos)
        return fmt::format("is it installed on {}, at the same path as here?", failure.host);
      return "";
    case Failure::Kind::host_stuck:
    case Failure::Kind::host_lost:
      return "the host, its network or the agent there is gone; its workers end when they notice";
  }
  return "";
}

}  // namespace hvd::launcher
