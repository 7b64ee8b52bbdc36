#include "base/watchdog.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "base/log.h"

namespace hvd {

Watchdog::Watchdog(TimePoint deadline, std::string cause) {
  if (deadline == kNever) return;
  thread_ = std::jthread([deadline, cause = std::move(cause)](const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "hvd-watchdog");
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    stopped.wait_until(lock, stop, deadline, [] { return false; });
    if (stop.stop_requested()) return;
    log(LogLevel::fatal, "{}", cause);
    ::_exit(1);  // not std::exit: exit handlers may wait for the same call
  });
}

}  // namespace hvd
