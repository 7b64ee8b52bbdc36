#include "core/core.h"

#include <unistd.h>

#include <atomic>

#include "core/settings.h"

namespace standin {
namespace {

std::atomic<int> first_sticky{0};
std::atomic<pid_t> owner{0};
std::atomic<Timeline> timelines{0};

struct HostClock {
  Timeline timeline = new_timeline();
  VectorClock clock;
};

HostClock& host() {
  static HostClock& together = *new HostClock;
  if (!settings().threads_apart) return together;
  thread_local HostClock& mine = *new HostClock;
  return mine;
}

}  // namespace

Core& core() {
  static Core& value = *new Core;  // workers use it until the process is gone
  return value;
}

bool core_started() { return owner == ::getpid(); }
void start_core() {
  pid_t none = 0;
  owner.compare_exchange_strong(none, ::getpid());
}
bool forked() { return owner != 0 && owner != ::getpid(); }

Timeline new_timeline() { return timelines++; }

VectorClock& host_clock() { return host().clock; }

SitePointer host_site(std::string what, const Stack& stack) {
  auto site = std::make_shared<Site>();
  site->what = std::move(what);
  site->stack = stack;
  site->timeline = host().timeline;
  site->step = host().clock.step(site->timeline);
  site->clock = host().clock;
  return site;
}

std::string to_text(const Site& site) { return site.what + ", called from\n" + to_text(site.stack); }

int sticky_error() { return first_sticky; }
void set_sticky_error(int code) {
  int none = 0;
  first_sticky.compare_exchange_strong(none, code);
}

}  // namespace standin
