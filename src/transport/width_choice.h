// Over how many of its connections a rank sends to a peer: found by trying, while it sends. Each power of two is used
// for a few stretches (striped_stream.h); then the fastest, for long, and all are tried again, because the others on
// the network change. A wider one must be clearly faster: connections cost memory and shares of other people's links.
// Thread rule: one caller at a time.
#pragma once

#include <vector>

#include "base/clock.h"

namespace hvd {

class WidthChoice {
 public:
  static constexpr int kTrial = 3;   // stretches of each width; the first is that of a changing one
  static constexpr int kKept = 120;  // stretches until all are tried again
  static constexpr double kGain = 1.1;

  explicit WidthChoice(bool is_fixed) : is_fixed_(is_fixed) {}  // fixed: always all connections
  void set_most(size_t most);                                   // connections; before anything else

  bool is_open() const { return !is_fixed_ && trials_.size() > 1; }  // only then are times wanted
  size_t choose();                                                   // for the next stretch
  // Only time in which there is something to send counts.
  void resume(TimePoint now) { since_ = now; }
  void pause(TimePoint now) { spent_ += now - since_; }
  void record(size_t width, TimePoint now);  // the next stretch has been sent

 private:
  struct Trial {
    size_t width;
    Duration best = Duration::max();  // time of a stretch
    int recorded = 0;
  };
  size_t fastest() const;

  const bool is_fixed_;
  std::vector<Trial> trials_;
  int chosen_ = 0;  // stretches since the trials began
  size_t kept_ = 1;
  TimePoint since_{};
  Duration spent_{};
};

}  // namespace hvd
