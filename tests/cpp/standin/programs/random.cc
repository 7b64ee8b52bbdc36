// Random programs of several streams and buffers. A clock of its own tells where a wait is needed; with all needed
// waits the program must pass, and with any one left out it must be caught.
#include <array>
#include <random>

#include "gpu.h"
#include "program.h"

using namespace gpu;

namespace {

constexpr size_t kStreams = 4, kBuffers = 5, kSteps = 60, kBytes = 512;

using Clock = std::array<int, kStreams>;

struct Access {
  size_t stream;
  int step;
  bool writes;
};

class RandomProgram {
 public:
  // `omitted` is the number of the wait to leave out, or -1.
  RandomProgram(unsigned seed, int omitted) : random_(seed), omitted_(omitted) {}

  // Returns how many waits were needed.
  int run() {
    const Device device;
    std::array<Stream, kStreams> streams;
    std::array<Buffer, kBuffers> buffers{Buffer(kBytes), Buffer(kBytes), Buffer(kBytes), Buffer(kBytes),
                                         Buffer(kBytes)};
    for (size_t step = 0; step < kSteps; ++step) {
      const size_t stream = random_() % kStreams, to = random_() % kBuffers, from = random_() % kBuffers;
      const bool copies = to != from && random_() % 2 == 0;
      prepare(streams, stream, to, true);
      if (copies) {
        prepare(streams, stream, from, false);
        CU(cuMemcpyDtoDAsync_v2(buffers[to], buffers[from], kBytes, streams[stream]));
      } else {
        CU(cuMemsetD8Async(buffers[to], static_cast<unsigned char>(step), kBytes, streams[stream]));
      }
      // Another wait of this step may have ordered what the omitted one was for: leave out the next instead.
      if (left_out_.step > 0 && real_[stream][left_out_.stream] >= left_out_.step) omitted_ = waits_;
      left_out_ = {};
      const int now = ++clocks_[stream][stream];
      real_[stream][stream] = now;
      accesses_[to].push_back({stream, now, true});
      if (copies) accesses_[from].push_back({stream, now, false});
    }
    for (const Stream& stream : streams) stream.finish();
    return waits_;
  }

 private:
  // Waits for every earlier access that conflicts and is not ordered yet.
  void prepare(const std::array<Stream, kStreams>& streams, size_t stream, size_t buffer, bool writes) {
    for (const Access& access : accesses_[buffer]) {
      if (access.stream == stream || (!access.writes && !writes) || clocks_[stream][access.stream] >= access.step)
        continue;
      if (omitted_ != waits_++) {
        order(streams[access.stream], streams[stream]);
        join(clocks_[stream], clocks_[access.stream]);
        join(real_[stream], real_[access.stream]);
      } else {
        std::printf("left out wait %d\n", omitted_);
        clocks_[stream][access.stream] = access.step;  // the bug: it takes the access for ordered
        left_out_ = access;
      }
    }
  }

  static void join(Clock& clock, const Clock& other) {
    for (size_t i = 0; i < kStreams; ++i) clock[i] = std::max(clock[i], other[i]);
  }

  std::mt19937 random_;
  int omitted_;
  int waits_ = 0;
  std::array<Clock, kStreams> clocks_{};  // what the program takes for ordered
  std::array<Clock, kStreams> real_{};    // what is
  Access left_out_{};
  std::array<std::vector<Access>, kBuffers> accesses_;
};

unsigned seed() { return static_cast<unsigned>(number_from("PROGRAM_SEED", 1)); }

void random_with_all_waits() { std::printf("%d waits\n", RandomProgram(seed(), -1).run()); }
void random_without_one_wait() { RandomProgram(seed(), static_cast<int>(seed() * 7 % 20)).run(); }

}  // namespace

std::vector<Program> random_programs() {
  return {{"random_with_all_waits", 1, "", random_with_all_waits},
          {"random_without_one_wait", 1, "two accesses that nothing orders", random_without_one_wait}};
}
