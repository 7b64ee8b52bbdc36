// As many ranks as a host may have, and as many on several hosts, many more than there are cores: real processes that
// know each other only from the environment, as the launcher makes it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "processes.h"
#include "support/effort.h"

namespace {

struct Crowd {
  int hosts, ranks_per_host;
  int steps;
  int size() const { return hosts * ranks_per_host; }
};
void PrintTo(const Crowd& crowd, std::ostream* out) {
  *out << crowd.hosts << " hosts with " << crowd.ranks_per_host << " ranks";
}

// Sums the elements over all ranks, in place; false with the reason on stderr.
bool sum(const char* name, std::vector<float>& data) {
  const auto count = static_cast<int64_t>(data.size());
  hvd_request request{};
  request.struct_size = sizeof request;
  request.kind = HVD_ALLREDUCE;
  request.reduce_op = HVD_SUM;
  request.name = name;
  request.prescale_factor = request.postscale_factor = 1.0;
  request.input = {.struct_size = sizeof(hvd_tensor),
                   .dtype = HVD_FLOAT32,
                   .device = HVD_HOST_DEVICE,
                   .ndim = 1,
                   .shape = &count,
                   .data = data.data(),
                   .stream = nullptr,
                   .ready_event = nullptr};
  request.output = request.input;
  hvd_handle handle = 0;
  if (hvd_submit(&request, 1, nullptr, &handle) == HVD_OK && hvd_wait(handle, -1) == HVD_OK) {
    hvd_release(handle);
    return true;
  }
  std::fprintf(stderr, "%s: %s\n", name, hvd_last_error());
  return false;
}

// Sizes on both sides of the limit between one hop and staged chunks, the largest less often.
int run_rank(const Crowd& crowd, int rank) {
  if (hvd_init(0, nullptr, nullptr) != HVD_OK) {
    std::fprintf(stderr, "rank %d: %s\n", rank, hvd_last_error());
    return 1;
  }
  const int size = crowd.size();
  if (hvd_rank() != rank || hvd_size() != size || hvd_local_size() != crowd.ranks_per_host) return 2;
  for (int step = 0; step < crowd.steps; step++) {
    for (size_t elements : {size_t{1}, size_t{1000}, size_t{100000}}) {
      if (elements == 100000 && step > 1) continue;
      std::vector<float> data(elements, static_cast<float>(rank + step));
      if (!sum(std::to_string(elements).c_str(), data)) return 3;
      const auto expected = static_cast<float>(size * (size - 1) / 2 + size * step);
      for (float value : data) {
        if (value != expected) {
          std::fprintf(stderr, "rank %d: %g of %zu, not %g\n", rank, value, elements, expected);
          return 4;
        }
      }
    }
  }
  return hvd_shutdown() == HVD_OK ? 0 : 5;
}

class Crowds : public testing::TestWithParam<Crowd> {};

TEST_P(Crowds, FormAWorldAndReduce) {
  const Crowd& crowd = GetParam();
  // With so many ranks to a core, one may not get its turn for long.
  const test::Variables variables{{"HOROVOD_SILENCE_SECONDS", "100"}};
  auto body = [&](int rank) { return run_rank(crowd, rank); };
  const std::vector<pid_t> ranks = test::start_world(crowd.hosts, crowd.ranks_per_host, variables, body);
  for (size_t rank = 0; rank < ranks.size(); rank++) EXPECT_EQ(test::wait_for(ranks[rank]), 0) << "rank " << rank;
}

const int kSteps = hvd::test::full() ? 100 : 10;
INSTANTIATE_TEST_SUITE_P(, Crowds, testing::Values(Crowd{1, 128, 2}, Crowd{4, 16, kSteps}, Crowd{4, 32, kSteps}));

}  // namespace
