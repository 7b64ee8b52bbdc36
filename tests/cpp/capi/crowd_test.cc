// As many ranks as a host may have, and as many on several hosts, many more than there are cores: real processes that
// know each other only from the environment, as the launcher makes it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "horovod/horovod.h"

namespace {

struct Crowd {
  int hosts, ranks_per_host;
  int steps;
  int size() const { return hosts * ranks_per_host; }
};
void PrintTo(const Crowd& crowd, std::ostream* out) {
  *out << crowd.hosts << " hosts with " << crowd.ranks_per_host << " ranks";
}

// Nobody else takes it before rank 0 listens there: it lies below the range from which the system gives ports away.
int free_port() {
  for (int port = 20000 + ::getpid() % 10000;; port++) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (free) return port;
  }
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

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

// The hosts are pretended: processes with different host names share no memory.
void describe_world(const Crowd& crowd, int rank, int port) {
  set("HOROVOD_RANK", std::to_string(rank));
  set("HOROVOD_SIZE", std::to_string(crowd.size()));
  set("HOROVOD_LOCAL_RANK", std::to_string(rank % crowd.ranks_per_host));
  set("HOROVOD_LOCAL_SIZE", std::to_string(crowd.ranks_per_host));
  set("HOROVOD_CROSS_RANK", std::to_string(rank / crowd.ranks_per_host));
  set("HOROVOD_CROSS_SIZE", std::to_string(crowd.hosts));
  set("HOROVOD_HOSTNAME", "host" + std::to_string(rank / crowd.ranks_per_host));
  set("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
  set("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port));
  set("HOROVOD_GLOO_IFACE", "lo");
  set("_HOROVOD_SECRET_KEY", std::string(64, '7'));
  set("HOROVOD_START_TIMEOUT", "200");
  set("HOROVOD_SILENCE_SECONDS", "100");  // with so many ranks to a core, one may not get its turn for long
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
  const int port = free_port();
  const pid_t parent = ::getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < crowd.size(); rank++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(6);
      describe_world(crowd, rank, port);
      const int code = run_rank(crowd, rank);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks.push_back(child);
  }
  for (size_t rank = 0; rank < ranks.size(); rank++) {
    int status = 0;
    ASSERT_EQ(::waitpid(ranks[rank], &status, 0), ranks[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(, Crowds, testing::Values(Crowd{1, 128, 2}, Crowd{4, 16, 100}, Crowd{4, 32, 100}));

}  // namespace
