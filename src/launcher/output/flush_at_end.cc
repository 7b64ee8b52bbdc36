#include "launcher/output/flush_at_end.h"

#include <fmt/core.h>

#include "base/clock.h"

namespace hvd {
namespace {

constexpr Duration kReaderPatience = std::chrono::seconds(5);  // with who reads our output, once the user has enough

}  // namespace

void flush_at_end(Screen& screen, Signals& signals, PollSet& set, bool was_stopped) {
  TimePoint give_up = was_stopped ? Clock::now() + kReaderPatience : kNever;
  screen.set_status("");
  for (screen.flush(); !screen.is_empty() && Clock::now() < give_up; screen.flush()) {
    screen.add_to(set);
    signals.add_to(set);
    set.wake_at(give_up);
    set.wait();
    if (!signals.take_stop_signals().empty()) give_up = Clock::now();
    signals.reap([](pid_t, int) {});
  }
  if (size_t lost = screen.files().count_waiting(); lost > 0) {
    screen.say(fmt::format("{} bytes of output could not be written to files, and are lost", lost));
  }
  screen.flush();  // what is said last
}

}  // namespace hvd
