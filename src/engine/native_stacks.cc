#include "engine/native_stacks.h"

#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

constexpr int kMostFrames = 48;
constexpr int kHandlerFrames = 2;  // this handler, and the kernel's way back

std::atomic<int> stacks_file{-1};

size_t put_number(char* into, long value) {
  std::array<char, 24> digits;
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value > 0);
  for (size_t i = 0; i < count; i++) into[i] = digits[count - 1 - i];
  return count;
}

// "native thread 4711\n". Only calls that a signal handler may make.
void write_heading(int file) {
  std::array<char, 64> line;
  constexpr char kText[] = "native thread ";
  size_t length = sizeof kText - 1;
  std::memcpy(line.data(), kText, length);
  length += put_number(line.data() + length, ::syscall(SYS_gettid));
  line[length++] = '\n';
  (void)!::write(file, line.data(), length);
}

// One thread at a time writes, so that their lines do not mix. The one that writes is not waited for in vain: it may be
// without a core.
class StacksTurn {
 public:
  StacksTurn() {
    for (int i = 0; i < kMostYields && is_writing.exchange(true, std::memory_order_acquire); i++) ::sched_yield();
  }
  StacksTurn(const StacksTurn&) = delete;
  StacksTurn& operator=(const StacksTurn&) = delete;
  ~StacksTurn() { is_writing.store(false, std::memory_order_release); }

 private:
  static constexpr int kMostYields = 100000;
  static inline std::atomic<bool> is_writing{false};
};

void on_signal(int) {
  int error = errno;
  int file = stacks_file.load(std::memory_order_relaxed);
  std::array<void*, kMostFrames> frames;
  int count = ::backtrace(frames.data(), kMostFrames);
  StacksTurn turn;
  write_heading(file);
  if (count > kHandlerFrames) ::backtrace_symbols_fd(frames.data() + kHandlerFrames, count - kHandlerFrames, file);
  errno = error;
}

}  // namespace

int start_native_stacks(int descriptor) {
  int signal = SIGRTMIN + 12;
  struct sigaction old {};
  if (::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) return 0;
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);  // the first call loads a library, which a handler must not do
  stacks_file.store(descriptor, std::memory_order_relaxed);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(signal, &action, nullptr) == 0 ? signal : 0;
}

}  // namespace hvd
