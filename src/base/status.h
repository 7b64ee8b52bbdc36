// Expected failures as values: Status, and Result<T> for a value or a Status.
// The code is for programs (elastic training retries peer_lost, never invalid_argument), the message for people.
// Thread rule: plain values.
#pragma once

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/origin.h"

namespace hvd {

enum class Code : int32_t {
  ok = 0,
  invalid_argument = 1,  // an error of the caller, found at submit; nothing was sent
  precondition = 2,      // ranks disagree, or the operation is not allowed now
  aborted = 3,           // the request can never be executed
  unknown = 4,           // shut down while pending, transport failure, unsupported combination
  peer_lost = 5,         // a rank died or fell silent: recoverable by starting a new generation
  timed_out = 6,         // the caller's time limit passed; the operation continues
  not_initialized = 7,
  removed = 8,  // elastic: the job has no place for this process any more
};

inline constexpr Code kLastCode = Code::removed;

std::string_view name_of(Code code);
// Converts a number that was received; one that is not a code, or is ok, becomes Code::unknown.
Code error_code_of(uint64_t number);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, Origin origin = {})
      : state_(std::make_unique<State>(State{code, std::move(message), std::move(origin)})) {
    assert(code != Code::ok);
  }
  Status(const Status& other) : state_(other.state_ ? std::make_unique<State>(*other.state_) : nullptr) {}
  Status(Status&&) noexcept = default;
  Status& operator=(Status other) noexcept {
    state_ = std::move(other.state_);
    return *this;
  }

  bool ok() const { return state_ == nullptr; }
  Code code() const { return state_ ? state_->code : Code::ok; }
  std::string_view message() const { return state_ ? std::string_view(state_->message) : std::string_view(); }
  const Origin& origin() const {  // kind none: unknown
    static const Origin unknown;
    return state_ ? state_->origin : unknown;
  }

 private:
  struct State {
    Code code;
    std::string message;
    Origin origin;
  };
  std::unique_ptr<State> state_;  // null means ok, so a success costs one pointer
};

// For an error of the user or the caller.
inline Status invalid_argument(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

// Describes errno: "cannot open timeline file /x/y: Permission denied".
Status system_error(std::string_view what, std::string_view about, int error = errno);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() {
    assert(ok());
    return *value_;
  }
  const T& value() const {
    assert(ok());
    return *value_;
  }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace hvd
