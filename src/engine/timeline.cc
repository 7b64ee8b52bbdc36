#include "engine/timeline.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/trace_file.h"

namespace hvd {
namespace {

constexpr size_t kQueueCapacity = 64 << 10;  // events
constexpr size_t kMaxTracks = 64 << 10;      // tensor names
constexpr size_t kMaxActivities = 1 << 10;   // distinct ones
constexpr size_t kMaxNameBytes = 512;        // of a name in the file: six times as much if every byte is escaped
constexpr size_t kMaxDims = 64;
constexpr auto kLinger = std::chrono::milliseconds(10);  // events within this time are written together

struct Event {
  enum class Type : uint8_t {
    track,
    negotiate,
    rank_ready,
    submit,
    begin,
    begin_in_plan,
    end,
    end_of_tensor,
    wait,
    cycle
  };
  int64_t micros = 0;        // since the timeline's start
  std::string_view label{};  // outlives the event
  int32_t pid = 0;
  int32_t rank = -1;       // rank_ready
  uint64_t number = 0;     // begin_in_plan: of the plan; wait: its microseconds
  bool is_cached = false;  // begin_in_plan
  Type type = Type::cycle;
  DType dtype = DType::f32;  // end_of_tensor
  uint8_t ndims = 0;         // end_of_tensor: how many of Batch::dims are its shape
};

struct Batch {
  std::vector<Event> events;
  std::vector<int64_t> dims;
  uint64_t dropped = 0;
  TimePoint taken_at;

  bool empty() const { return events.empty() && dropped == 0; }
  void clear() {
    events.clear();
    dims.clear();
    dropped = 0;
  }
};

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

// Any bytes as a JSON string.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kMaxNameBytes));
  if (shown.size() < text.size()) shown += "...";
  return nlohmann::json(std::move(shown)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string process_name(int32_t pid, std::string_view args) {
  return fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{{}}}}})", pid, args);
}

std::string process_sort_index(int32_t pid) {
  return fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", pid);
}

}  // namespace

class Timeline::State {
 public:
  State(std::unique_ptr<TraceFile> file, std::string path, bool mark_cycles, bool is_detailed, TimePoint start)
      : path_(std::move(path)),
        mark_cycles_(mark_cycles),
        is_detailed_(is_detailed),
        start_(start),
        file_(std::move(file)) {
    queue_.events.reserve(kQueueCapacity);
    writer_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void close() {
    writer_.request_stop();
    if (writer_.joinable()) writer_.join();
  }

  const std::string& path() const { return path_; }
  bool mark_cycles() const { return mark_cycles_; }
  bool is_detailed() const { return is_detailed_; }

  // Begins a slice of the tensor's track; the label is a literal or from activity_label().
  void begin(std::string_view tensor, Event::Type type, std::string_view label, InPlan in_plan = {}) {
    post([&](int64_t now) {
      Track* track = find_or_add(tensor);
      // A slice inside a dropped one is dropped too, so that the recorded slices stay nested.
      if (track == nullptr || track->skipped > 0 || !has_room(2)) {
        if (track != nullptr) track->skipped++;
        queue_.dropped++;
        return;
      }
      track->open++;
      open_++;
      queue_.events.push_back({.micros = now,
                               .label = label,
                               .pid = track->pid,
                               .number = in_plan.plan,
                               .is_cached = in_plan.is_cached,
                               .type = type});
    });
  }

  void end(std::string_view tensor, Event::Type type, DType dtype, std::span<const int64_t> shape) {
    post([&](int64_t now) {
      auto found = tracks_.find(tensor);
      if (found == tracks_.end()) return;
      Track& track = found->second;
      if (track.skipped > 0) {
        track.skipped--;
        queue_.dropped++;
        return;
      }
      if (track.open == 0) return;  // it began before the timeline did
      track.open--;
      open_--;
      shape = shape.first(std::min(shape.size(), kMaxDims));
      queue_.dims.insert(queue_.dims.end(), shape.begin(), shape.end());
      queue_.events.push_back(
          {.micros = now, .pid = track.pid, .type = type, .dtype = dtype, .ndims = static_cast<uint8_t>(shape.size())});
    });
  }

  void slice(std::string_view tensor, std::string_view label, TimePoint begin, TimePoint end) {
    post([&](int64_t) {
      auto found = tracks_.find(tensor);
      if (found == tracks_.end() || found->second.open == 0) return;  // the timeline began in between
      if (found->second.skipped > 0 || !has_room(2)) {
        queue_.dropped++;
        return;
      }
      int32_t pid = found->second.pid;
      queue_.events.push_back({.micros = micros_at(begin), .label = label, .pid = pid, .type = Event::Type::begin});
      queue_.events.push_back({.micros = micros_at(end), .pid = pid, .type = Event::Type::end});
    });
  }

  void mark(std::string_view tensor, Event::Type type, int32_t rank) {
    post([&](int64_t now) {
      Track* track = find_or_add(tensor);
      if (track == nullptr || !has_room(1)) {
        queue_.dropped++;
        return;
      }
      queue_.events.push_back({.micros = now, .pid = track->pid, .rank = rank, .type = type});
    });
  }

  void waited(TimePoint begin) {
    post([&](int64_t now) {
      int64_t from = micros_at(std::max(begin, start_));
      if (has_room(1)) {
        queue_.events.push_back({.micros = from,
                                 .number = static_cast<uint64_t>(std::max<int64_t>(now - from, 0)),
                                 .type = Event::Type::wait});
      } else {
        queue_.dropped++;
      }
    });
  }

  void cycle() {
    post([&](int64_t now) {
      if (has_room(1)) {
        queue_.events.push_back({.micros = now, .type = Event::Type::cycle});
      } else {
        queue_.dropped++;
      }
    });
  }

  std::string_view activity_label(std::string_view activity) {
    std::lock_guard lock(mutex_);
    auto found = activities_.find(activity);
    if (found == activities_.end()) {
      if (activities_.size() == kMaxActivities) return "OTHER";
      found = activities_.emplace(activity).first;
    }
    return *found;
  }

 private:
  struct Track {
    int32_t pid;
    uint32_t open = 0;     // slices recorded and not yet ended
    uint32_t skipped = 0;  // slices dropped and not yet ended, inside of these
  };

  template <class Add>
  void post(Add add) {
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      bool was_empty = queue_.empty();
      size_t before = queue_.events.size();
      add(micros_at(Clock::now()));
      wake = (was_empty && !queue_.empty()) || (before < kQueueCapacity / 2 && is_half_full());
    }
    if (wake) arrived_.notify_one();
  }

  int64_t micros_at(TimePoint time) const {
    return std::chrono::duration_cast<std::chrono::microseconds>(time - start_).count();
  }

  // Every open slice has room reserved for its end, so an end always fits.
  bool has_room(size_t count) const { return queue_.events.size() + open_ + count <= kQueueCapacity; }
  bool is_half_full() const { return queue_.events.size() >= kQueueCapacity / 2; }

  Track* find_or_add(std::string_view tensor) {
    if (auto found = tracks_.find(tensor); found != tracks_.end()) return &found->second;
    if (tracks_.size() == kMaxTracks || !has_room(1)) return nullptr;
    auto pid = static_cast<int32_t>(tracks_.size() + 1);
    auto added = tracks_.emplace(tensor, Track{.pid = pid}).first;
    queue_.events.push_back({.label = added->first, .pid = pid, .type = Event::Type::track});
    return &added->second;
  }

  void run(const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "hvd-timeline");
    try {
      Batch batch;
      batch.events.reserve(kQueueCapacity);
      while (take(batch, stop)) {
        if (Status status = write(batch); !status.ok()) {
          log_error("timeline {} ends here: {}", path_, status.message());
          return;
        }
        batch.clear();
      }
    } catch (const std::exception& error) {
      log_error("timeline {} ends here: {}", path_, error.what());
    }
  }

  // Waits for events; false: none are left and none will come.
  bool take(Batch& batch, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait(lock, stop, [&] { return !queue_.empty(); })) return false;
    arrived_.wait_for(lock, stop, kLinger, [&] { return is_half_full(); });
    std::swap(batch, queue_);
    batch.taken_at = Clock::now();
    return true;
  }

  Status write(const Batch& batch) {
    std::span<const int64_t> dims(batch.dims);
    for (const Event& event : batch.events) {
      if (Status status = write(event, dims.first(event.ndims)); !status.ok()) return status;
      dims = dims.subspan(event.ndims);
    }
    if (batch.dropped > 0) {
      Status status = file_->append(
          fmt::format(R"({{"ph":"i","name":"DROPPED_EVENTS","ts":{},"pid":0,"s":"g","args":{{"count":{}}}}})",
                      micros_at(batch.taken_at), batch.dropped));
      if (!status.ok()) return status;
    }
    return file_->flush();
  }

  Status write(const Event& event, std::span<const int64_t> shape) {
    switch (event.type) {
      case Event::Type::track: {
        Status status = file_->append(process_name(event.pid, R"("name":)" + quoted(event.label)));
        return status.ok() ? file_->append(process_sort_index(event.pid)) : status;
      }
      case Event::Type::negotiate:
        return file_->append(fmt::format(R"({{"ph":"B","name":"NEGOTIATE_{}","ts":{},"pid":{}}})", event.label,
                                         event.micros, event.pid));
      case Event::Type::rank_ready:
        return file_->append(
            fmt::format(R"({{"ph":"X","name":"{}","ts":{},"pid":{},"dur":0}})", event.rank, event.micros, event.pid));
      case Event::Type::submit:
        return file_->append(
            fmt::format(R"({{"ph":"i","name":"SUBMIT","ts":{},"pid":{},"s":"p"}})", event.micros, event.pid));
      case Event::Type::begin_in_plan:
        return file_->append(fmt::format(R"({{"ph":"B","name":{},"ts":{},"pid":{},"args":{{"plan":{},"cached":{}}}}})",
                                         quoted(event.label), event.micros, event.pid, event.number, event.is_cached));
      case Event::Type::wait:
        return file_->append(
            fmt::format(R"({{"ph":"X","name":"WAIT","ts":{},"pid":0,"dur":{}}})", event.micros, event.number));
      case Event::Type::begin:
        return file_->append(
            fmt::format(R"({{"ph":"B","name":{},"ts":{},"pid":{}}})", quoted(event.label), event.micros, event.pid));
      case Event::Type::end:
        return file_->append(fmt::format(R"({{"ph":"E","ts":{},"pid":{}}})", event.micros, event.pid));
      case Event::Type::end_of_tensor:
        return file_->append(fmt::format(R"({{"ph":"E","ts":{},"pid":{},"args":{{"dtype":"{}","shape":"{}"}}}})",
                                         event.micros, event.pid, name_of(event.dtype),
                                         text_of(Shape(shape.begin(), shape.end()))));
      case Event::Type::cycle:
        return file_->append(fmt::format(R"({{"ph":"i","name":"CYCLE_START","ts":{},"pid":0,"s":"g"}})", event.micros));
    }
    return {};
  }

  const std::string path_;
  const bool mark_cycles_;
  const bool is_detailed_;
  const TimePoint start_;
  const std::unique_ptr<TraceFile> file_;  // used by the writer

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any arrived_;
  Batch queue_;
  size_t open_ = 0;  // slices recorded and not yet ended
  std::unordered_map<std::string, Track, TextHash, std::equal_to<>> tracks_;
  std::unordered_set<std::string, TextHash, std::equal_to<>> activities_;

  std::jthread writer_;  // last: it stops before the other members are destroyed
};

Result<std::unique_ptr<Timeline>> Timeline::create(const std::string& path, bool mark_cycles, int32_t rank,
                                                   const std::optional<TimelinePlace>& place) {
  auto file = TraceFile::create(path);
  if (!file.ok()) return file.status();
  TimePoint start = Clock::now();
  auto epoch = std::chrono::system_clock::now().time_since_epoch();  // relates the clocks of all ranks' files
  auto micros = [](auto time) { return std::chrono::duration_cast<std::chrono::microseconds>(time).count(); };
  std::string args = fmt::format(R"("name":"rank {}","start_time_since_epoch_in_micros":{})", rank, micros(epoch));
  if (place) {  // processes of one host share the second clock exactly
    args += fmt::format(R"(,"start_time_since_boot_in_micros":{},"host":{},"size":{})",
                        micros(start.time_since_epoch()), quoted(std::string_view(place->host)), place->size);
  }
  Status status = (*file)->append(process_name(0, args));
  if (status.ok()) status = (*file)->append(process_sort_index(0));
  if (status.ok()) status = (*file)->flush();
  if (!status.ok()) return status;
  return std::unique_ptr<Timeline>(
      new Timeline(std::make_unique<State>(std::move(*file), path, mark_cycles, place.has_value(), start)));
}

Timeline::Timeline(std::unique_ptr<State> state) : state_(std::move(state)) {}
Timeline::~Timeline() = default;

void Timeline::close() { state_->close(); }

const std::string& Timeline::path() const { return state_->path(); }

namespace {
std::string_view operation_label(Kind kind, bool adasum) { return adasum ? "ADASUM" : timeline_name(kind); }
}  // namespace

void Timeline::negotiate_start(std::string_view tensor, Kind kind, bool adasum) {
  state_->begin(tensor, Event::Type::negotiate, operation_label(kind, adasum));
}
void Timeline::negotiate_rank_ready(std::string_view tensor, int32_t rank) {
  state_->mark(tensor, Event::Type::rank_ready, rank);
}
void Timeline::negotiate_end(std::string_view tensor) { state_->end(tensor, Event::Type::end, {}, {}); }

void Timeline::submit(std::string_view tensor) {
  if (state_->is_detailed()) state_->mark(tensor, Event::Type::submit, -1);
}
void Timeline::waited(TimePoint begin) {
  if (state_->is_detailed()) state_->waited(begin);
}

void Timeline::start(std::string_view tensor, Kind kind, bool adasum, InPlan in_plan) {
  auto type = state_->is_detailed() ? Event::Type::begin_in_plan : Event::Type::begin;
  state_->begin(tensor, type, operation_label(kind, adasum), in_plan);
}
void Timeline::activity_start(std::string_view tensor, std::string_view activity) {
  state_->begin(tensor, Event::Type::begin, state_->activity_label(activity));
}
void Timeline::activity(std::string_view tensor, std::string_view activity, TimePoint begin, TimePoint end) {
  state_->slice(tensor, state_->activity_label(activity), begin, end);
}

void Timeline::activity_end(std::string_view tensor) { state_->end(tensor, Event::Type::end, {}, {}); }
void Timeline::end(std::string_view tensor, DType dtype, const Shape& shape) {
  state_->end(tensor, Event::Type::end_of_tensor, dtype, shape);
}

void Timeline::mark_cycle() {
  if (state_->mark_cycles()) state_->cycle();
}

}  // namespace hvd
