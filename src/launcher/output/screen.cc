#include "launcher/output/screen.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"

namespace hvd::launcher {
namespace {

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

constexpr Duration kReaderPatience =
    std::chrono::seconds(5);  // for the reader of our output, after the user has stopped the job

}  // namespace

Screen::Screen()
    : out_(Console::from_inherited(STDOUT_FILENO)), err_(&out_), is_terminal_(::isatty(STDERR_FILENO) == 1) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) err_ = &own_err_.emplace(Console::from_inherited(STDERR_FILENO));
}

void Screen::show(WorkerStream stream, std::string_view lines) {
  if (lines.empty()) return;
  hide_status();
  console(stream).append(lines);
}

void Screen::say(std::string_view text) {
  hide_status();
  err_->append(fmt::format("horovodrun: {}\n", text));
}

void Screen::set_status(std::string text) {
  if (!is_terminal_ || (text == status_ && is_shown_)) return;
  hide_status();
  status_ = std::move(text);
}

void Screen::hide_status() {
  if (std::exchange(is_shown_, false)) err_->append("\r\x1b[K");
}

void Screen::add_to(PollSet& set) {
  if (!status_.empty() && !std::exchange(is_shown_, true))
    err_->append(fmt::format("\r{:.{}}", status_, terminal_width()));
  // Nothing is written here: a caller that found a full console waits until it has room.
  for (Console* console : {&out_, err_})
    if (!console->empty()) set.add(console->fd(), POLLOUT, [console] { console->flush(); });
  files_.add_to(set);
}

void Screen::flush() {
  for (const std::string& text : files_.news()) say(text);
  out_.flush();
  err_->flush();
}

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
  screen.flush();  // flushes the last message
}

}  // namespace hvd::launcher
