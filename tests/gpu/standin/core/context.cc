#include "core/context.h"

#include <set>

#include "core/settings.h"
#include "cuda_declarations.h"

namespace standin {
namespace {

struct Handles {
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<void*, std::shared_ptr<Stream>> streams;  // destroyed ones too
  std::set<void*> events;                            // likewise
  uint64_t event_count = 0;
};
Handles& handles() {
  static Handles& value = *new Handles;
  return value;
}

std::shared_ptr<Stream> default_stream(Context& context) {
  if (context.default_stream == nullptr) {
    context.default_stream = make_stream(&context, true, {});
    context.default_stream->is_default = true;
  }
  return context.default_stream;
}

std::shared_ptr<Stream> thread_stream(Context& context) {
  auto& stream = context.thread_streams[std::this_thread::get_id()];
  if (stream == nullptr) {
    stream = make_stream(&context, true, {});
    handles().streams[stream.get()] = stream;
  }
  return stream;
}

}  // namespace

Context& primary_context(int gpu) {
  auto& all = handles().contexts;
  while (static_cast<int>(all.size()) < settings().gpus) {
    all.push_back(std::make_unique<Context>());
    all.back()->gpu = static_cast<int>(all.size()) - 1;
  }
  return *all.at(static_cast<size_t>(gpu));
}

Context* as_context(void* handle) {
  for (const auto& context : handles().contexts)
    if (context.get() == handle) return context.get();
  return nullptr;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

Event* make_event(bool timed, const Stack& stack) {
  auto* event = new Event;
  event->number = ++handles().event_count;
  event->context = current_context();
  event->timed = timed;
  event->stack = stack;
  handles().events.insert(event);
  return event;
}

Event* as_event(void* handle) {
  if (!handles().events.contains(handle)) {
    violation("not an event\n" + to_text(here()));
    return nullptr;
  }
  auto* event = static_cast<Event*>(handle);
  if (!event->destroyed) return event;
  violation("event " + std::to_string(event->number) + " is used after cuEventDestroy\n" + to_text(here()));
  return nullptr;
}

void* to_handle(const std::shared_ptr<Stream>& stream) {
  handles().streams[stream.get()] = stream;
  return stream.get();
}

Stream* as_stream(void* handle, const char* call) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  Context* context = current_context();
  if (value <= cuda::kLegacyStream) return context == nullptr ? nullptr : default_stream(*context).get();
  if (value == cuda::kPerThreadStream) return context == nullptr ? nullptr : thread_stream(*context).get();
  const auto found = handles().streams.find(handle);
  if (found == handles().streams.end()) {
    violation(std::string(call) + ": not a stream\n" + to_text(here()));
    return nullptr;
  }
  Stream* stream = found->second.get();
  if (!stream->destroyed) return stream;
  violation(std::string(call) + ": stream " + std::to_string(stream->number) +
            " is used after cuStreamDestroy, made in\n" + to_text(stream->stack) + "  used in\n" + to_text(here()));
  return nullptr;
}

std::string list_handles() {
  std::string text;
  const std::lock_guard lock(core().mutex);
  for (void* handle : handles().events) {
    const auto& event = *static_cast<Event*>(handle);
    if (!event.destroyed) text += "  event " + std::to_string(event.number) + ", made in\n" + to_text(event.stack);
  }
  for (const auto& context : handles().contexts) {
    if (context->references > 0)
      text += "  " + std::to_string(context->references) + " references to the context of GPU " +
              std::to_string(context->gpu) + "\n";
  }
  return text;
}

}  // namespace standin
