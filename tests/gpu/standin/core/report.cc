#include "core/report.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/core.h"
#include "core/settings.h"

namespace standin {
namespace {

std::atomic<int> violations{0};

struct ExitLists {
  std::mutex mutex;
  std::vector<std::function<std::string()>> lists;
};
ExitLists& exit_lists() {
  static ExitLists& value = *new ExitLists;
  return value;
}

// In .fini_array, so after all atexit handlers and destructors of statics: whatever the program frees, it has freed.
__attribute__((destructor)) void check_at_exit() {
  if (!core_started()) return;
  finish_queued_work();
  std::string alive;
  for (const auto& list : exit_lists().lists) alive += list();
  if (!alive.empty() && sticky_error() == 0) {
    if (settings().leaks_fail) {
      violation("still alive at exit:\n" + alive);
    } else {
      std::fprintf(stderr, "stand-in: still alive at exit:\n%s", alive.c_str());
    }
  }
  if (violations > 0) ::_exit(kViolationExit);
}

}  // namespace

Stack here() {
  Stack stack;
  if (settings().count_only) return stack;
  stack.depth = ::backtrace(stack.frames.data(), static_cast<int>(stack.frames.size()));
  return stack;
}

std::string to_text(const Stack& stack) {
  std::string text;
  for (int i = 1; i < stack.depth; ++i) {
    Dl_info info{};
    char line[512];
    if (::dladdr(stack.frames[i], &info) != 0 && info.dli_sname != nullptr) {
      std::snprintf(line, sizeof line, "      %s in %s\n", info.dli_sname, info.dli_fname);
    } else {
      const auto offset = static_cast<char*>(stack.frames[i]) - static_cast<char*>(info.dli_fbase);
      std::snprintf(line, sizeof line, "      %s+0x%lx\n", info.dli_fname, static_cast<unsigned long>(offset));
    }
    text += line;
  }
  return text;
}

void violation(const std::string& text) {
  ++violations;
  const std::string rank = settings().rank >= 0 ? " rank " + std::to_string(settings().rank) : "";
  std::fprintf(stderr, "stand-in: VIOLATION%s: %s\nstand-in: pid %d, schedule %s, seed %llu\n", rank.c_str(),
               text.c_str(), static_cast<int>(::getpid()), schedule_name().c_str(),
               static_cast<unsigned long long>(settings().seed));
  std::fflush(stderr);
  if (settings().abort_at_once) std::abort();
}

void at_exit_list(std::function<std::string()> alive) {
  const std::lock_guard lock(exit_lists().mutex);
  exit_lists().lists.push_back(std::move(alive));
}

}  // namespace standin
