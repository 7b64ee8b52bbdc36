// Reads the events of one file of a timeline into a RankTrace. Anything may stand in a file: what is no event of a
// timeline is counted and skipped.
// Thread rule: one caller at a time.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "report/event_splitter.h"
#include "report/trace.h"

namespace hvd::report {

// Gives each text a number.
class Names {
 public:
  uint32_t number_of(std::string_view text);
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

class RankReader {
 public:
  // `room`: how many records may be kept, shared by all files.
  RankReader(Names& names, Names& kinds, size_t& room) : names_(names), kinds_(kinds), room_(room) {}

  void feed(std::string_view bytes);
  // The file has ended. Empty: all was well; otherwise what was not.
  std::vector<std::string> finish();
  RankTrace take() { return std::move(trace_); }

 private:
  struct Track {
    uint32_t name = 0;
    bool is_named = false;
    int64_t submit = kUnknownTime, agreed = kUnknownTime;
    std::vector<Mark> marks;  // whose operation has not started yet
    std::vector<char> open;   // the slices under way: n, o or a
    int64_t operation = -1;   // under way: index
  };

  struct Event;
  void take_event(std::string_view text);
  void take_metadata(const Event& event);
  void take_begin(const Event& event);
  void take_end(const Event& event);
  void take_complete(const Event& event);
  bool has_room();

  Names& names_;
  Names& kinds_;
  size_t& room_;
  RankTrace trace_;
  EventSplitter splitter_;
  std::unordered_map<int64_t, Track> tracks_;
  size_t strange_ = 0;   // objects that are no events
  size_t left_out_ = 0;  // operations and waits for which there was no room
  size_t unmatched_ = 0;
};

}  // namespace hvd::report
