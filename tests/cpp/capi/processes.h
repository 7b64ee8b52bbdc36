// Worlds of real processes that know each other only from the environment, as the launcher makes it. Hosts are
// pretended: processes with different host names share no memory. Thread rule: the main thread of a test.
#pragma once

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
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace test {

using Variables = std::map<std::string, std::string>;

// Nobody else takes it before rank 0 listens there: it lies below the range from which the system gives ports away.
inline int free_port() {
  static int next = 20000 + ::getpid() % 10000;
  for (int port = next++;; port = next++) {
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

// `variables` are added to those of the rank.
inline void describe_place(int hosts, int ranks_per_host, int rank, int port, const Variables& variables) {
  auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
  set("HOROVOD_RANK", std::to_string(rank));
  set("HOROVOD_SIZE", std::to_string(hosts * ranks_per_host));
  set("HOROVOD_LOCAL_RANK", std::to_string(rank % ranks_per_host));
  set("HOROVOD_LOCAL_SIZE", std::to_string(ranks_per_host));
  set("HOROVOD_CROSS_RANK", std::to_string(rank / ranks_per_host));
  set("HOROVOD_CROSS_SIZE", std::to_string(hosts));
  set("HOROVOD_HOSTNAME", "host" + std::to_string(rank / ranks_per_host));
  set("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
  set("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port));
  set("HOROVOD_GLOO_IFACE", "lo");
  set("_HOROVOD_SECRET_KEY", std::string(64, '7'));
  set("HOROVOD_START_TIMEOUT", "200");
  for (const auto& [name, value] : variables) set(name.c_str(), value);
}

// Starts one process for each rank; `body` is all it does and gives its exit code. They die with the test.
inline std::vector<pid_t> start_world(int hosts, int ranks_per_host, const Variables& variables,
                                      const std::function<int(int rank)>& body) {
  const int port = free_port();
  const pid_t parent = ::getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < hosts * ranks_per_host; rank++) {
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(6);
      describe_place(hosts, ranks_per_host, rank, port, variables);
      const int code = body(rank);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks.push_back(child);
  }
  return ranks;
}

inline int wait_for(pid_t process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

}  // namespace test
