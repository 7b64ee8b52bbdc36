#include "report/rank_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/number.h"

namespace hvd::report {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostNames = 1 << 20;
constexpr int64_t kLatest = int64_t{1} << 56;  // microseconds: sums of such times fit

int64_t number_in(const Json& object, const char* key, int64_t otherwise) {
  auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return otherwise;
  double value = found->get<double>();
  if (!(value > -static_cast<double>(kLatest) && value < static_cast<double>(kLatest))) return otherwise;
  return found->is_number_float() ? static_cast<int64_t>(value) : found->get<int64_t>();
}

std::string text_in(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t size_of(const std::string& dtype) {
  if (dtype.ends_with("128")) return 16;
  if (dtype.ends_with("64")) return 8;
  if (dtype.ends_with("32")) return 4;
  return dtype.ends_with("16") ? 2 : 1;
}

// "[3, 5]"
uint64_t elements_of(std::string_view shape) {
  uint64_t count = 1;
  for (size_t at = 0; at < shape.size();) {
    size_t begin = shape.find_first_of("0123456789", at);
    if (begin == std::string_view::npos) break;
    size_t end = std::min(shape.find_first_not_of("0123456789", begin), shape.size());
    count *= read_number<uint64_t>(shape.substr(begin, end - begin)).value_or(0);
    if (count > uint64_t{1} << 50) return 0;  // of a broken file
    at = end;
  }
  return count;
}

}  // namespace

uint32_t Names::number_of(std::string_view text) {
  auto found = numbers_.find(std::string(text));
  if (found != numbers_.end()) return found->second;
  std::string name(texts_.size() < kMostNames ? text : "(other names)");
  auto [added, is_new] = numbers_.emplace(name, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(std::move(name));
  return added->second;
}

struct RankReader::Event {
  Json json, args;
  std::string type, name;
  int64_t when, track;
};

bool RankReader::has_room() {
  if (room_ == 0) {
    left_out_++;
    return false;
  }
  room_--;
  return true;
}

void RankReader::feed(std::string_view bytes) {
  splitter_.feed(bytes, [this](std::string_view text) { take_event(text); });
}

void RankReader::take_event(std::string_view text) {
  Event event{.json = Json::parse(text, nullptr, false), .args = {}, .type = {}, .name = {}, .when = 0, .track = 0};
  if (!event.json.is_object()) {
    strange_++;
    return;
  }
  event.type = text_in(event.json, "ph");
  event.name = text_in(event.json, "name");
  event.when = std::max<int64_t>(number_in(event.json, "ts", 0), 0);
  event.track = number_in(event.json, "pid", 0);
  if (auto args = event.json.find("args"); args != event.json.end() && args->is_object()) event.args = std::move(*args);
  if (event.args.is_null()) event.args = Json::object();
  if (event.type == "M") return take_metadata(event);
  if (event.type == "B") return take_begin(event);
  if (event.type == "E") return take_end(event);
  if (event.type == "X") return take_complete(event);
  if (event.type != "i") {
    strange_++;
  } else if (event.name == "SUBMIT") {
    tracks_[event.track].submit = event.when;
  } else if (event.name == "DROPPED_EVENTS") {
    trace_.dropped += static_cast<uint64_t>(std::max<int64_t>(number_in(event.args, "count", 0), 0));
  }
}

void RankReader::take_metadata(const Event& event) {
  if (event.name != "process_name") return;
  std::string name = text_in(event.args, "name");
  if (event.track != 0) {
    Track& track = tracks_[event.track];
    track.name = names_.number_of(name);
    track.is_named = true;
    return;
  }
  if (name.starts_with("rank ")) trace_.rank = read_number<int32_t>(name.substr(5)).value_or(-1);
  trace_.epoch_start = number_in(event.args, "start_time_since_epoch_in_micros", 0);
  trace_.boot_start = number_in(event.args, "start_time_since_boot_in_micros", -1);
  trace_.size = static_cast<int32_t>(std::clamp<int64_t>(number_in(event.args, "size", 0), 0, 1 << 24));
  trace_.host = text_in(event.args, "host");
}

void RankReader::take_begin(const Event& event) {
  Track& track = tracks_[event.track];
  if (event.name.starts_with("NEGOTIATE_")) {
    track.open.push_back('n');
    track.marks.clear();
    return;
  }
  bool is_outermost = std::count(track.open.begin(), track.open.end(), 'o') == 0;
  track.open.push_back(is_outermost ? 'o' : 'a');
  if (!is_outermost) return;
  if (!track.is_named) {
    track.name = names_.number_of(fmt::format("track {}", event.track));
    track.is_named = true;
  }
  track.operation = -1;
  if (has_room()) {
    auto cached = event.args.find("cached");
    track.operation = static_cast<int64_t>(trace_.operations.size());
    trace_.operations.push_back({.name = track.name,
                                 .kind = kinds_.number_of(event.name),
                                 .plan = number_in(event.args, "plan", -1),
                                 .is_cached = cached != event.args.end() && cached->is_boolean() && cached->get<bool>(),
                                 .submit = track.submit,
                                 .start = event.when,
                                 .agreed = track.agreed});
    for (Mark mark : track.marks) {
      if (room_ == 0) break;
      room_--;
      mark.operation = static_cast<uint32_t>(track.operation);
      trace_.marks.push_back(mark);
    }
  }
  track.submit = track.agreed = kUnknownTime;
  track.marks.clear();
}

void RankReader::take_end(const Event& event) {
  Track& track = tracks_[event.track];
  if (track.open.empty()) {
    unmatched_++;
    return;
  }
  char kind = track.open.back();
  track.open.pop_back();
  if (kind == 'n') track.agreed = event.when;
  if (kind != 'o' || track.operation < 0) return;
  Operation& operation = trace_.operations[static_cast<size_t>(track.operation)];
  operation.end = std::max(event.when, operation.start);
  operation.bytes = elements_of(text_in(event.args, "shape")) * size_of(text_in(event.args, "dtype"));
}

void RankReader::take_complete(const Event& event) {
  if (event.name == "WAIT") {
    int64_t length = std::max<int64_t>(number_in(event.json, "dur", 0), 0);
    if (has_room()) trace_.waits.push_back({event.when, event.when + length});
    return;
  }
  auto rank = read_number<int32_t>(event.name);
  if (!rank) return;
  Track& track = tracks_[event.track];
  if (!track.open.empty() && track.open.back() == 'n' && track.marks.size() < 1 << 20) {
    track.marks.push_back({.rank = *rank, .when = event.when});
  }
}

std::vector<std::string> RankReader::finish() {
  std::vector<std::string> problems;
  size_t under_way = 0;
  for (const Operation& operation : trace_.operations) under_way += operation.end == kUnknownTime ? 1 : 0;
  if (splitter_.is_inside() || !splitter_.is_closed()) {
    problems.push_back("the file is cut off: it was copied while it was written, or its disk was full");
  }
  if (strange_ + splitter_.too_long() > 0) {
    problems.push_back(
        fmt::format("{} things in it are no events of a timeline, and are left out", strange_ + splitter_.too_long()));
  }
  if (under_way > 0) {
    problems.push_back(
        fmt::format("{} operations have no end: the rank was killed, or lost the others, within them", under_way));
  }
  if (trace_.dropped > 0) {
    problems.push_back(fmt::format(
        "{} events were dropped because the disk was too slow; what they belong to is missing", trace_.dropped));
  }
  if (left_out_ > 0) {
    problems.push_back(fmt::format(
        "{} operations and waits at its end are left out, to bound memory; record a shorter part", left_out_));
  }
  return problems;
}

}  // namespace hvd::report
