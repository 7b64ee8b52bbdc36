// The memory behind a layout. The launcher makes one for each worker and keeps it when the worker dies; the worker
// finds it by a variable. Without a launcher a process has one of its own.
// It is a memfd: it has no name, so that no other user can open it, and it is gone with its last process.
// Thread rule: plain owner.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/status.h"
#include "observe/layout.h"

namespace hvd::observe {

// Names the memory, and the file that stacks are written to: see descriptors_text().
inline constexpr const char* kObserveVariable = "_HOROVOD_OBSERVE";

class Memory {
 public:
  static Result<Memory> create();             // private to this process
  static Result<Memory> map(int descriptor);  // `precondition`: it is none, or of another version
  Memory(Memory&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~Memory();

  Shared& operator*() const { return *shared_; }
  Shared* operator->() const { return shared_; }

 private:
  explicit Memory(void* address) : shared_(static_cast<Shared*>(address)) {}

  Shared* shared_;
};

// What a launcher gives to a worker. Neither can be made smaller by it.
struct Descriptors {
  UniqueFd memory, stacks;
};
Result<Descriptors> make_descriptors();

// For the environment: the numbers and what the kernel calls them, so that nothing else is used where a program between
// the two has closed them. The worker gets two descriptors that programs which it executes do not get, or none.
std::string descriptors_text(const Descriptors& descriptors);
struct Found {
  int memory = -1, stacks = -1;
};
Found find_descriptors(std::string_view text);

}  // namespace hvd::observe
