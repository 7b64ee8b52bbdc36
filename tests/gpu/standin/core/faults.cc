#include "core/faults.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "core/settings.h"

namespace standin {
namespace {

struct Rule {
  std::string call;
  size_t number = 0;  // 0: every call
  size_t size = 0;    // 0: any size
  FaultAction action{};
  size_t seen = 0;
};

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "stand-in: HVD_STANDIN_FAULTS: '%s' is not [RANK:]CALL[@N]=ACTION\n", text.c_str());
  std::_Exit(kViolationExit);
}

FaultAction action_of(const std::string& text, const std::string& whole) {
  const size_t open = text.find('(');
  const std::string name = text.substr(0, open);
  const int value = open == std::string::npos ? 0 : std::atoi(text.c_str() + open + 1);
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
    return {Fault::code, std::atoi(name.c_str())};
  if (name == "hang") return {Fault::hang};
  if (name == "slow") return {Fault::slow, value};
  if (name == "kill") return {Fault::kill};
  if (name == "stop") return {Fault::stop};
  if (name == "async") return {Fault::async, value};
  if (name == "never") return {Fault::never};
  if (name == "busy") return {Fault::busy, value};
  if (name == "capturing") return {Fault::capturing};
  refuse(whole);
}

// Which of the first `among` calls: by seed and rank, so that a seed replays.
size_t chosen(size_t among) {
  uint64_t x =
      settings().seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(settings().rank + 2) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
  return 1 + (x ^ (x >> 32)) % (among == 0 ? 1 : among);
}

std::optional<Rule> parse(std::string text) {
  const std::string whole = text;
  Rule rule;
  const size_t equals = text.find('=');
  if (equals == std::string::npos) refuse(whole);
  rule.action = action_of(text.substr(equals + 1), whole);
  text.resize(equals);
  if (const size_t colon = text.find(':'); colon != std::string::npos) {
    if (std::atoi(text.c_str()) != settings().rank) return std::nullopt;
    text.erase(0, colon + 1);
  }
  if (const size_t at = text.find('@'); at != std::string::npos) {
    const std::string when = text.substr(at + 1);
    if (when.starts_with("size")) {
      rule.size = std::strtoull(when.c_str() + 4, nullptr, 10);
    } else if (when.starts_with("random/")) {
      rule.number = chosen(std::strtoull(when.c_str() + 7, nullptr, 10));
    } else if (rule.number = std::strtoull(when.c_str(), nullptr, 10); rule.number == 0) {
      refuse(whole);
    }
    text.resize(at);
  }
  rule.call = text;
  return rule;
}

std::vector<Rule> parse_all() {
  std::vector<Rule> rules;
  std::istringstream list(settings().faults);
  for (std::string text; std::getline(list, text, ';');)
    if (!text.empty())
      if (auto rule = parse(text)) rules.push_back(*rule);
  return rules;
}

std::optional<FaultAction> due(const char* call, size_t size) {
  static std::mutex& mutex = *new std::mutex;  // guards the counts
  static auto& rules = *new std::vector<Rule>(parse_all());
  if (rules.empty()) return std::nullopt;
  const std::lock_guard lock(mutex);
  for (Rule& rule : rules) {
    if (rule.call != call || (rule.size != 0 && rule.size != size)) continue;
    ++rule.seen;
    if (rule.number == 0 || rule.number == rule.seen) return rule.action;
  }
  return std::nullopt;
}

// A rename is atomic: one process gets the fault.
std::optional<FaultAction> claimed(const char* call) {
  if (settings().fault_folder.empty()) return std::nullopt;
  const std::string path = settings().fault_folder + "/" + call;
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  const std::string mine = path + ".claimed." + std::to_string(settings().rank) + "." + std::to_string(::getpid());
  if (::rename(path.c_str(), mine.c_str()) != 0) return std::nullopt;
  std::string text;
  std::getline(std::ifstream(mine), text);
  return action_of(text, text);
}

}  // namespace

std::optional<FaultAction> fault_at(const char* call, size_t size) {
  auto action = due(call, size);
  if (!action) action = claimed(call);
  if (!action) return std::nullopt;
  std::fprintf(stderr, "stand-in: fault in %s, rank %d\n", call, settings().rank);
  switch (action->fault) {
    case Fault::hang:
      for (;;) ::pause();
    case Fault::slow: std::this_thread::sleep_for(std::chrono::milliseconds(action->value)); return std::nullopt;
    case Fault::kill: ::raise(SIGKILL); break;
    case Fault::stop: ::raise(SIGSTOP); return std::nullopt;
    case Fault::code:
    case Fault::async:
    case Fault::never:
    case Fault::busy:
    case Fault::capturing: break;
  }
  return action;
}

}  // namespace standin
