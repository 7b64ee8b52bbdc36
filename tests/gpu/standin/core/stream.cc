#include "core/stream.h"

#include <pthread.h>

#include <set>
#include <thread>

#include "core/context.h"
#include "core/settings.h"

namespace standin {
namespace {

// How long a stream of the lazy schedule rests when no thread waits for it. Work that only a peer process waits for has
// to move in the end.
constexpr std::chrono::milliseconds kRest{20};

std::set<std::shared_ptr<Stream>>& streams() {
  static auto& value = *new std::set<std::shared_ptr<Stream>>;
  return value;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

bool rests(const Stream& stream) {
  switch (settings().schedule) {
    case Schedule::eager: return false;
    case Schedule::lazy: return true;
    case Schedule::random: return randomly((stream.number << 32) + stream.completed, 3);
  }
  return false;
}

void run_front(Stream& stream, std::unique_lock<std::mutex>& lock) {
  const auto wanted = [&] { return stream.demanded > stream.completed; };
  if (rests(stream)) core().changed.wait_for(lock, kRest, wanted);
  Work work = std::move(stream.queue.front());
  for (const Point& point : work.after) wait_for(point, lock);
  if (work.run && (work.even_after_error || sticky_error() == 0)) {
    lock.unlock();
    work.run(work.site);
    work.run = nullptr;  // what it holds is released without the mutex
    lock.lock();
  }
  stream.queue.pop_front();
  ++stream.completed;
  core().changed.notify_all();
}

void serve(const std::shared_ptr<Stream>& stream) {
  ::pthread_setname_np(::pthread_self(), "standin-stream");
  std::unique_lock lock(core().mutex);
  for (;;) {
    core().changed.wait(lock, [&] { return !stream->queue.empty() || stream->destroyed; });
    if (stream->queue.empty()) break;
    run_front(*stream, lock);
  }
  streams().erase(stream);
  core().changed.notify_all();
}

void follow(Work& work, VectorClock& clock, const Stream& other) {
  if (other.submitted == 0) return;
  clock.join(other.clock);
  work.after.push_back({const_cast<Stream&>(other).shared_from_this(), other.submitted});
}

// The legacy default stream waits for all blocking streams of its context, and they wait for it.
void follow_default_rules(Stream& stream, Work& work) {
  if (!stream.blocking) return;
  for (const auto& other : streams()) {
    if (other.get() == &stream || other->context != stream.context || !other->blocking) continue;
    if (stream.is_default || other->is_default) follow(work, stream.clock, *other);
  }
}

}  // namespace

bool randomly(uint64_t decision, unsigned one_in) {
  return settings().schedule == Schedule::random &&
         mixed(settings().seed * 0x9e3779b97f4a7c15ULL + decision) % one_in == 0;
}

std::shared_ptr<Stream> make_stream(Context* context, bool blocking, const Stack& stack) {
  static uint64_t count = 0;
  auto stream = std::make_shared<Stream>();
  stream->number = ++count;
  stream->context = context;
  stream->blocking = blocking;
  stream->stack = stack;
  stream->timeline = new_timeline();
  if (settings().count_only) return stream;
  streams().insert(stream);
  std::thread(serve, stream).detach();  // ends when the stream is destroyed and empty; default streams never end
  return stream;
}

void destroy(Stream& stream) {
  stream.destroyed = true;
  stream.demanded = stream.submitted;
  core().changed.notify_all();
}

Point launch(Stream& stream, const SitePointer& host, std::string what, std::vector<Point> after,
             std::function<void(const SitePointer&)> run, bool even_after_error) {
  const Point here{stream.shared_from_this(), ++stream.submitted};
  if (settings().count_only) {
    stream.completed = stream.submitted;
    return here;
  }
  Work work{.site = nullptr, .after = std::move(after), .run = std::move(run), .even_after_error = even_after_error};
  stream.clock.join(host->clock);
  follow_default_rules(stream, work);
  auto site = std::make_shared<Site>();
  site->what = std::move(what) + " on stream " + std::to_string(stream.number);
  site->stack = host->stack;
  site->timeline = stream.timeline;
  site->step = stream.clock.step(stream.timeline);
  site->clock = stream.clock;
  work.site = std::move(site);
  stream.queue.push_back(std::move(work));
  core().changed.notify_all();
  return here;
}

void demand(const Point& point) {
  if (point.stream->demanded >= point.position) return;
  point.stream->demanded = point.position;
  core().changed.notify_all();
}

void wait_for(const Point& point, std::unique_lock<std::mutex>& lock) {
  demand(point);
  core().changed.wait(lock, [&] { return point.stream->done(point.position); });
}

void wait_for_all(Context* context, std::unique_lock<std::mutex>& lock) {
  std::vector<Point> points;
  for (const auto& stream : streams())
    if (context == nullptr || stream->context == context) points.push_back({stream, stream->submitted});
  for (const Point& point : points) wait_for(point, lock);
}

void join_all_streams(Context* context) {
  for (const auto& stream : streams())
    if (stream->context == context) host_clock().join(stream->clock);
}

void finish_queued_work() {
  // Work that waits for a peer process may never end; what is alive then is listed.
  std::unique_lock lock(core().mutex);
  for (const auto& stream : streams()) stream->demanded = stream->submitted;
  core().changed.notify_all();
  core().changed.wait_for(lock, std::chrono::seconds(2), [] {
    for (const auto& stream : streams())
      if (!stream->done(stream->submitted)) return false;
    return true;
  });
}

std::string list_streams() {
  std::string text;
  const std::lock_guard lock(core().mutex);
  for (const auto& stream : streams()) {
    if (!stream->done(stream->submitted)) text += "  unfinished work: " + to_text(*stream->queue.front().site);
    if (!stream->is_default && !stream->destroyed)
      text += "  stream " + std::to_string(stream->number) + ", made in\n" + to_text(stream->stack);
  }
  return text;
}

}  // namespace standin
