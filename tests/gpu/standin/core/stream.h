// Streams: a queue and a worker thread each. What orders work is decided when it is launched (clocks, dependencies);
// when it runs is up to the schedule. Thread rule: core().mutex is held, unless noted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/core.h"

namespace standin {

struct Context;
struct Stream;

// A place in a stream's queue: done once the stream has completed that many pieces of work.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;
};

struct Work {
  SitePointer site;
  std::vector<Point> after;
  std::function<void(const SitePointer&)> run;  // on the worker, without the mutex
  bool even_after_error = false;                // runs although the process has a sticky error
};

struct Stream : std::enable_shared_from_this<Stream> {
  uint64_t number = 0;  // counts the streams of the process
  Context* context = nullptr;
  bool blocking = true;  // takes part in the rules of the legacy default stream
  bool is_default = false;
  Stack stack;  // of its creation
  Timeline timeline = 0;
  VectorClock clock;
  std::deque<Work> queue;
  uint64_t submitted = 0, completed = 0;
  uint64_t demanded = 0;  // a thread waits for this position
  bool destroyed = false;
  int capture = 0;             // status of cuStreamIsCapturing
  std::string reserved_for{};  // a NCCL group in progress, which launches here later; "" if none

  bool done(uint64_t position) const { return completed >= position; }
};

STANDIN_VISIBLE std::shared_ptr<Stream> make_stream(Context* context, bool blocking, const Stack& stack);
void destroy(Stream& stream);

// Puts work on a stream, after the legacy default stream's rules, and returns its place. `host` is the call's site.
STANDIN_VISIBLE Point launch(Stream& stream, const SitePointer& host, std::string what, std::vector<Point> after,
                             std::function<void(const SitePointer&)> run, bool even_after_error = false);

// Tells the schedule that a thread waits for this point.
STANDIN_VISIBLE void demand(const Point& point);
// Waits for it. The lock is released meanwhile.
STANDIN_VISIBLE void wait_for(const Point& point, std::unique_lock<std::mutex>& lock);
void wait_for_all(Context* context, std::unique_lock<std::mutex>& lock);  // null: every context

// After wait_for_all: what these streams did happened before the host's next step.
void join_all_streams(Context* context);

// A decision of schedule "random": true once in `one_in`, from the seed and a number that says which decision it is.
STANDIN_VISIBLE bool randomly(uint64_t decision, unsigned one_in);

}  // namespace standin
