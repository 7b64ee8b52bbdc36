// Writes Chrome trace events to a file that is valid JSON at any time, even after kill -9: each write replaces the
// closing bracket. Events are queued in bounded memory and written by a background thread; when the queue is full they
// are counted, and the count is recorded as an event. Thread rule: any thread; only close() waits for the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "model/request.h"

namespace hvd {

// Where the process is: for a recording of all ranks, which horovodrun --report puts together (src/report).
struct TimelinePlace {
  int32_t size = 1;
  std::string host;
};

struct InPlan {
  uint64_t plan = 0;
  bool is_cached = false;
};

class Timeline {
 public:
  // `rank` names the process in an all-ranks recording (its track's metadata) and is otherwise unused. With a place,
  // submissions, waits and the numbers of plans are recorded as well.
  static Result<std::unique_ptr<Timeline>> create(const std::string& path, bool mark_cycles, int32_t rank,
                                                  const std::optional<TimelinePlace>& place = std::nullopt);
  ~Timeline();  // closes

  // Returns when all queued events are written; later ones are dropped.
  void close();
  const std::string& path() const;

  // Negotiation of one tensor (root rank only): B NEGOTIATE_<OP>, X <rank>, E.
  void negotiate_start(std::string_view tensor, Kind kind, bool adasum);
  void negotiate_rank_ready(std::string_view tensor, int32_t rank);
  void negotiate_end(std::string_view tensor);
  // With a place: i SUBMIT when this rank submits a tensor, X WAIT when a thread of the user has waited since `begin`.
  void submit(std::string_view tensor);
  void waited(TimePoint begin);
  // Execution of one tensor: B <OP>, nested activities, E with dtype and shape. With a place: in which plan, and
  // whether the plan cache knew the tensor.
  void start(std::string_view tensor, Kind kind, bool adasum, InPlan in_plan = {});
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
