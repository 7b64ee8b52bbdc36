// Measures collectives on float32, the same way for every library. A *case* is a collective and its bytes; a *sample*
// runs it back to back for some milliseconds, and its time is that of the slowest rank. Rank 0 prints one line per
// sample: collective, bytes, ranks, microseconds per operation, and the probe in ns before and after.
// Every case starts with a checked operation; a wrong result marks its lines.
// Bytes: of the tensor of each rank (allreduce, broadcast), of the gathered one (allgather), of what a rank sends
// (alltoall), of the tensor before it is reduced (reducescatter). Thread rule: as of Team.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "team.h"

namespace bench {

enum class Collective {
  allreduce,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
  burst,  // many small allreduces, submitted before the first is awaited; the tensors lie one after another
  async,  // allreduce, submitted without saying that the caller waits
  idle,   // no operation: what the process costs while nothing happens
};

struct Case {
  Collective collective;
  size_t bytes;
  size_t count() const { return bytes / sizeof(float); }
};

// "allreduce:4,16 barrier:0 ...", one argument per collective.
std::vector<Case> parse_cases(int argc, char** argv, int first);
std::string_view name_of(Collective collective);

class Sampler {
 public:
  // argv: <ranks> <samples> <milliseconds per sample> <case> ...
  Sampler(Team& team, int argc, char** argv);

  const std::vector<Case>& cases() const { return cases_; }
  float* in() { return in_; }
  float* out() { return out_; }
  size_t share_of(const Case& c) const { return c.count() / static_cast<size_t>(team_.size()); }

  // The operation reads in() and leaves its result at `result`. `pause` is called, outside of the measured time, after
  // every run of operations, before the rank does anything else.
  template <class Operation, class Pause = decltype([] {})>
  void measure(const Case& c, const float* result, Operation&& operation, Pause&& pause = {}) {
    fill(c, false);
    time(operation, pause, 1);
    bool wrong = team_.largest(is_right(c, result) ? 0 : 1) != 0;
    fill(c, true);  // zeros stay zeros, however often they are summed up
    long repeats = calibrate(operation, pause);
    for (int sample = 0; sample < samples_; sample++) {
      double before = team_.probe();
      double slowest = team_.largest(time(operation, pause, repeats) / static_cast<double>(repeats));
      print(c, slowest * 1e6, before, team_.probe(), wrong);
    }
  }
  void print(const Case& c, double us, double probe_before, double probe_after, bool wrong) const;

 private:
  void fill(const Case& c, bool zero);
  bool is_right(const Case& c, const float* result) const;

  template <class Operation, class Pause>
  double time(Operation& operation, Pause& pause, long repeats) {
    team_.barrier();
    double start = now();
    for (long i = 0; i < repeats; i++) operation();
    double seconds = now() - start;
    pause();
    return seconds;
  }

  template <class Operation, class Pause>
  long calibrate(Operation& operation, Pause& pause) {
    for (long repeats = 1;; repeats *= 4) {
      double seconds = team_.share(time(operation, pause, repeats));
      if (seconds < sample_seconds_ / 5 && repeats < 1'000'000) continue;
      return std::max(1L, static_cast<long>(static_cast<double>(repeats) * sample_seconds_ / seconds));
    }
  }

  Team& team_;
  int samples_;
  double sample_seconds_;
  std::vector<Case> cases_;
  float *in_, *out_;  // as large as the largest case; they live as long as the process
};

}  // namespace bench
