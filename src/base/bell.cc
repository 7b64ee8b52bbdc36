#include "base/bell.h"

#include <sys/eventfd.h>

namespace hvd {

Result<UniqueFd> create_bell() {
  UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return system_error("cannot create an eventfd", "");
  return bell;
}

void ring(const UniqueFd& bell) {
  uint64_t one = 1;
  // Fails only with EAGAIN: the eventfd is already signalled.
  [[maybe_unused]] ssize_t written = ::write(bell.get(), &one, sizeof one);
}

void silence(const UniqueFd& bell) {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t taken = ::read(bell.get(), &count, sizeof count);
}

}  // namespace hvd
