// Writes Chrome trace events to a file that is valid JSON at any time, even after kill -9: each write replaces the
// closing bracket. Events are queued in bounded memory and written by a background thread; when the queue is full they
// are counted, and the count is recorded as an event. Thread rule: any thread; only close() waits for the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "model/request.h"

namespace hvd {

class Timeline {
 public:
  // `rank` names the process in an all-ranks recording (its track's metadata) and is otherwise unused.
  static Result<std::unique_ptr<Timeline>> create(const std::string& path, bool mark_cycles, int32_t rank);
  ~Timeline();  // closes

  // Returns when all queued events are written; later ones are dropped.
  void close();
  const std::string& path() const;

  // Negotiation of one tensor (root rank only): B NEGOTIATE_<OP>, X <rank>, E.
  void negotiate_start(std::string_view tensor, Kind kind, bool adasum);
  void negotiate_rank_ready(std::string_view tensor, int32_t rank);
  void negotiate_end(std::string_view tensor);
  // Execution of one tensor: B <OP>, nested activities, E with dtype and shape.
  void start(std::string_view tensor, Kind kind, bool adasum);
  void activity_start(std::string_view tensor, std::string_view activity);
  void activity_end(std::string_view tensor);
  // One that is over: of the tensor's execution that has been started.
  void activity(std::string_view tensor, std::string_view activity, TimePoint begin, TimePoint end);
  void end(std::string_view tensor, DType dtype, const Shape& shape);
  void mark_cycle();  // CYCLE_START, if mark_cycles

 private:
  class State;
  explicit Timeline(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd
