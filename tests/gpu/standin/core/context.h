// GPUs, their primary contexts, and the handles that programs hold. A handle is the address of an object that is never
// freed, so that a use after its end is recognised. Thread rule: core().mutex is held, unless noted.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/stream.h"

namespace standin {

struct Context {
  int gpu = 0;
  int references = 0;  // retained this many times
  std::shared_ptr<Stream> default_stream;
  std::map<std::thread::id, std::shared_ptr<Stream>> thread_streams;  // per-thread default streams
};

struct Event {
  uint64_t number = 0;
  Context* context = nullptr;
  bool timed = true;
  bool destroyed = false;
  Stack stack;
  bool recorded = false;
  Point point;        // of the latest record
  VectorClock clock;  // of the stream at that record
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

Context& primary_context(int gpu);                  // 0 <= gpu < settings().gpus
STANDIN_VISIBLE Context* as_context(void* handle);  // null if it is none

// The stack of contexts of the calling thread, which needs no lock.
STANDIN_VISIBLE std::vector<Context*>& context_stack();
STANDIN_VISIBLE Context* current_context();

Event* make_event(bool timed, const Stack& stack);
Event* as_event(void* handle);  // null if it is none, or destroyed; that is a violation
void* to_handle(const std::shared_ptr<Stream>& stream);
// The stream of a handle, 0 to 2 included, in the current context. Null after a violation.
STANDIN_VISIBLE Stream* as_stream(void* handle, const char* call);

}  // namespace standin
