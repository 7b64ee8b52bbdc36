// As many ranks as a host may have, many more than it has cores: real processes that know each other only from the
// environment, as the launcher makes it.
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

constexpr int kRanks = 128;

// A port of our own names the job on this machine.
class HeldPort {
 public:
  HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, generic, size) != 0 || ::getsockname(socket_, generic, &size) != 0) std::abort();
    number_ = ntohs(address.sin_port);
  }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  ~HeldPort() { ::close(socket_); }
  int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

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

// Sizes on both sides of the limit between one hop and staged chunks, each twice: negotiated, then from the cache.
int run_rank(int rank) {
  if (hvd_init(0, nullptr, nullptr) != HVD_OK) {
    std::fprintf(stderr, "rank %d: %s\n", rank, hvd_last_error());
    return 1;
  }
  if (hvd_rank() != rank || hvd_size() != kRanks || hvd_local_size() != kRanks) return 2;
  for (int round = 0; round < 2; round++) {
    for (size_t elements : {size_t{1}, size_t{1000}, size_t{100000}}) {
      std::vector<float> data(elements, static_cast<float>(rank + round));
      if (!sum(std::to_string(elements).c_str(), data)) return 3;
      const auto expected = static_cast<float>(kRanks * (kRanks - 1) / 2 + kRanks * round);
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

TEST(Crowd, AFullHostFormsAWorldAndReduces) {
  HeldPort port;
  const pid_t parent = ::getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; rank++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(6);
      set("HOROVOD_RANK", std::to_string(rank));
      set("HOROVOD_LOCAL_RANK", std::to_string(rank));
      for (const char* name : {"HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"}) set(name, std::to_string(kRanks));
      set("HOROVOD_HOSTNAME", "localhost");
      set("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
      set("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port.number()));
      set("_HOROVOD_SECRET_KEY", std::string(64, '7'));
      set("HOROVOD_START_TIMEOUT", "200");
      const int code = run_rank(rank);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks.push_back(child);
  }
  for (int rank = 0; rank < kRanks; rank++) {
    int status = 0;
    ASSERT_EQ(::waitpid(ranks[static_cast<size_t>(rank)], &status, 0), ranks[static_cast<size_t>(rank)]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

}  // namespace
