#include "launcher/output/screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace hvd::launcher {
namespace {

// The launcher's stdout is a pipe for as long as this lives.
class StdoutPipe {
 public:
  StdoutPipe() {
    std::fflush(stdout);
    saved_ = ::dup(STDOUT_FILENO);
    if (::pipe2(ends_, O_NONBLOCK | O_CLOEXEC) != 0 || ::dup2(ends_[1], STDOUT_FILENO) < 0) std::abort();
  }
  ~StdoutPipe() {
    ::dup2(saved_, STDOUT_FILENO);
    for (int fd : {saved_, ends_[0], ends_[1]}) ::close(fd);
  }
  StdoutPipe(const StdoutPipe&) = delete;
  StdoutPipe& operator=(const StdoutPipe&) = delete;

  void fill() const {
    while (::write(ends_[1], bytes_.data(), bytes_.size()) > 0) {
    }
  }
  void drain() {
    while (::read(ends_[0], bytes_.data(), bytes_.size()) > 0) {
    }
  }

 private:
  int saved_, ends_[2];
  std::array<char, 4096> bytes_{};
};

// Somebody has looked at the screen and holds back because of what it saw: it must be woken, also when the reader makes
// room in between.
TEST(Screen, WhatWaitsIsPolledForAlsoWhenTheReaderHasJustMadeRoom) {
  StdoutPipe pipe;
  Screen screen;
  pipe.fill();
  screen.show(WorkerStream::out, "a line\n");
  screen.flush();
  ASSERT_FALSE(screen.is_empty());
  pipe.drain();
  PollSet set;
  screen.add_to(set);
  EXPECT_FALSE(screen.is_empty());
  set.wait();
  EXPECT_TRUE(screen.is_empty());
}

}  // namespace
}  // namespace hvd::launcher
