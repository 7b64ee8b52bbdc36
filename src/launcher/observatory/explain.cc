#include "launcher/observatory/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/observatory/fields.h"

namespace hvd::launcher {
namespace {

using nlohmann::json;

constexpr size_t kMostStories = 16;
constexpr size_t kMostRanksNamed = 12;
constexpr size_t kMostFrames = 64;

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kMostRanksNamed; i++)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMostRanksNamed) text += fmt::format(" and {} more", ranks.size() - kMostRanksNamed);
  return text;
}

std::string clock_text(double seconds) {
  if (!(seconds > 0) || seconds > 1e11) return "an unknown time";
  auto whole = static_cast<time_t>(seconds);
  tm parts{};
  ::localtime_r(&whole, &parts);
  char text[32];
  size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return {text, length};
}

std::string age_text(double seconds) { return fmt::format("{:.1f} s", std::max(0.0, seconds)); }

const json& operations_of(const json& worker) {
  const json& all = field(worker, "operations");
  return all.is_array() ? all : field(worker, "pending");
}

void note(Waiting& waiting, int64_t rank, const json& operation) {
  waiting.waiting.push_back(rank);
  double since = number_of(operation, "submitted");
  if (waiting.since == 0 || since < waiting.since) waiting.since = since;
  waiting.kind = text_of(operation, "kind");
  waiting.is_agreed = waiting.is_agreed || field(operation, "agreed").is_number();
}

}  // namespace

std::vector<Waiting> find_waiting(const json& workers) {
  if (!workers.is_array()) return {};
  std::map<std::pair<int64_t, std::string>, Waiting> found;
  std::map<int64_t, std::set<int64_t>> members;  // of process sets
  std::set<int64_t> world;
  for (const json& worker : workers) {
    int64_t rank = rank_of(worker);
    if (rank < 0) continue;
    world.insert(rank);
    const json& sets = field(field(worker, "metrics"), "process_sets");
    if (sets.is_object())
      for (const auto& [set, unused] : sets.items())
        if (set.size() < 9 && set.find_first_not_of("0123456789") == std::string::npos && !set.empty())
          members[std::stoll(set)].insert(rank);
    const json& operations = operations_of(worker);
    if (!operations.is_array()) continue;
    for (const json& operation : operations) {
      if (text_of(operation, "outcome") != "pending") continue;
      int64_t set = whole_of(operation, "process_set");
      Waiting& waiting = found[{set, text_of(operation, "name")}];
      waiting.name = text_of(operation, "name");
      waiting.process_set = set;
      members[set].insert(rank);
      note(waiting, rank, operation);
    }
  }
  std::vector<Waiting> all;
  for (auto& [key, waiting] : found) {
    const std::set<int64_t>& of_set = waiting.process_set == 0 ? world : members[waiting.process_set];
    std::sort(waiting.waiting.begin(), waiting.waiting.end());
    if (!waiting.is_agreed)
      std::set_difference(of_set.begin(), of_set.end(), waiting.waiting.begin(), waiting.waiting.end(),
                          std::back_inserter(waiting.missing));
    all.push_back(std::move(waiting));
  }
  std::stable_sort(all.begin(), all.end(), [](const Waiting& a, const Waiting& b) { return a.since < b.since; });
  return all;
}

// Of the thread that the signal came to, which is the main thread where it can take signals.
std::vector<std::string> python_frames(const std::string& stacks) {
  std::vector<std::string> frames, current;
  bool is_current = false;
  for (size_t begin = 0; begin < stacks.size();) {
    size_t end = std::min(stacks.find('\n', begin), stacks.size());
    std::string line = stacks.substr(begin, end - begin);
    begin = end + 1;
    if (line.find("most recent call first") != std::string::npos) {
      is_current = line.starts_with("Current thread");
      if (!is_current) frames.clear();  // the main thread comes last
    } else if (line.starts_with("  File ")) {
      std::vector<std::string>& into = is_current ? current : frames;
      if (into.size() < kMostFrames) into.push_back(line.substr(2));
    } else if (line.starts_with("native ")) {
      break;
    }
  }
  return current.empty() ? frames : current;
}

namespace {

// 'File "/a/b.py", line 12 in name' as "name (b.py:12)".
std::string short_frame(const std::string& frame) {
  size_t first = frame.find('"'), last = frame.rfind('"'), line = frame.rfind(", line "), in = frame.rfind(" in ");
  if (first == last || line == std::string::npos || in == std::string::npos || in < line) return frame;
  std::string path = frame.substr(first + 1, last - first - 1);
  return fmt::format("{} ({}:{})", frame.substr(in + 4), path.substr(path.rfind('/') + 1),
                     frame.substr(line + 7, in - line - 7));
}

bool is_library(const std::string& frame) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen", "/python/horovod/"})
    if (frame.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

std::string place_in(const std::string& stacks) {
  std::vector<std::string> frames = python_frames(stacks);
  if (frames.empty()) return {};
  std::string place = "in " + short_frame(frames[0]);
  auto own = std::find_if(frames.begin(), frames.end(), [](const std::string& frame) { return !is_library(frame); });
  if (own == frames.begin() || own == frames.end()) {
    if (frames.size() > 1 && own == frames.begin()) place += ", called by " + short_frame(frames[1]);
    return place;
  }
  return place + ", called by " + short_frame(*own);
}

namespace {

class Story {
 public:
  explicit Story(const json& dump) : dump_(dump), taken_(number_of(dump, "time")) {
    const json& workers = field(dump, "workers");
    if (!workers.is_array()) return;
    for (const json& worker : workers) {
      workers_.push_back(&worker);
      if (int64_t rank = rank_of(worker); rank >= 0) by_rank_[rank] = &worker;
    }
  }

  std::string tell() {
    head();
    size_t told = 0;
    std::vector<Waiting> all = find_waiting(field(dump_, "workers"));
    for (const Waiting& waiting : all) {
      if (told++ == kMostStories) {
        text_ += fmt::format("... and {} more operations.\n", all.size() - kMostStories);
        break;
      }
      tell(waiting);
    }
    if (all.empty()) text_ += "No operation was under way on any rank.\n";
    for (const auto& [rank, worker] : by_rank_)
      if (!told_.contains(rank)) tell_rank(rank, *worker);
    history();
    return std::move(text_);
  }

 private:
  void head() {
    text_ += fmt::format("{}\n", text_of(dump_, "reason").empty() ? "A dump" : text_of(dump_, "reason"));
    text_ += fmt::format("Taken at {} of: {}\n", clock_text(taken_), text_of(dump_, "command"));
    text_ += fmt::format("{} workers, {} of them ranks.\n\n", workers_.size(), by_rank_.size());
  }

  void tell(const Waiting& waiting) {
    std::string set = waiting.process_set == 0 ? "" : fmt::format(" of process set {}", waiting.process_set);
    std::string kind = waiting.name.find(waiting.kind) == std::string::npos ? waiting.kind + " " : "";
    std::string age = age_text(taken_ - waiting.since);
    if (waiting.is_agreed) {
      text_ += fmt::format("{}{}{} was being executed by {}, submitted {} before.\n", kind, waiting.name, set,
                           ranks_text(waiting.waiting), age);
      return;
    }
    if (waiting.missing.empty()) {
      text_ += fmt::format("{}{}{} was submitted by all known members and not agreed on, {} after the first.\n", kind,
                           waiting.name, set, age);
      return;
    }
    text_ += fmt::format("{} waited {} in {}{}{}.\n", ranks_text(waiting.waiting), age, kind, waiting.name, set);
    for (size_t i = 0; i < waiting.missing.size() && i < kMostRanksNamed; i++) {
      int64_t rank = waiting.missing[i];
      auto worker = by_rank_.find(rank);
      text_ += fmt::format("  rank {}{} never submitted {}", rank, on_host(rank), waiting.name);
      text_ += worker == by_rank_.end() ? ".\n" : fmt::format("; {}.\n", where_is(*worker->second));
      told_.insert(rank);
    }
  }

  void tell_rank(int64_t rank, const json& worker) {
    text_ += fmt::format("rank {}{}: {}.\n", rank, on_host(rank), where_is(worker));
  }

  std::string on_host(int64_t rank) const {
    auto worker = by_rank_.find(rank);
    std::string host = worker == by_rank_.end() ? "" : text_of(*worker->second, "host");
    return host.empty() ? "" : " on " + host;
  }

  std::string where_is(const json& worker) const {
    std::string process = text_of(worker, "process");
    std::string end = text_of(worker, "end");
    if (process == "ended") return end.empty() ? "its process has ended" : "its process has ended: " + end;
    if (process == "stopped") return "its process was stopped (SIGSTOP, or a debugger)" + since(worker);
    std::string place = place_in(text_of(worker, "stacks"));
    if (place.empty()) return "where it is, is not known; its process was " + process + since(worker);
    return "it was " + place + since(worker);
  }

  // How long it has done nothing with Horovod.
  std::string since(const json& worker) const {
    double last = 0;
    const json& operations = field(worker, "operations");
    if (operations.is_array())
      for (const json& operation : operations)
        last = std::max({last, number_of(operation, "submitted"), number_of(operation, "done")});
    if (last <= 0) return "";
    return fmt::format(", {} after its last operation", age_text(taken_ - last));
  }

  void history() {
    const json& events = field(dump_, "events");
    if (!events.is_array() || events.empty()) return;
    text_ += "\nWhat had happened:\n";
    for (const json& event : events)
      text_ += fmt::format("  {}  {}\n", clock_text(number_of(event, "time")), text_of(event, "text"));
  }

  const json& dump_;
  double taken_;
  std::vector<const json*> workers_;
  std::map<int64_t, const json*> by_rank_;
  std::set<int64_t> told_;
  std::string text_;
};

}  // namespace

Result<std::string> explain(const std::string& dump) {
  json parsed = json::parse(dump, nullptr, false);
  if (parsed.is_discarded() || text_of(parsed, "format") != "horovod-dump")
    return Status(Code::invalid_argument, "this is no dump that horovodrun has written");
  if (whole_of(parsed, "version") != 1)
    return Status(Code::invalid_argument, "this dump is of another version; use the horovodrun that has written it");
  return Story(parsed).tell();
}

}  // namespace hvd::launcher
