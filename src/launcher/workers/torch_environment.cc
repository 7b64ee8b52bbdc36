#include "launcher/workers/torch_environment.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>

#include "base/fd.h"

namespace hvd::launcher {
namespace {

// Below the ephemeral ports of the kernel, so that no connection of the job takes it first.
constexpr uint16_t kFirstTorchPort = 20000, kTorchPorts = 10000;
constexpr int kPortTries = 100;

bool is_free(uint16_t port) {
  UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return true;  // no IPv6: PyTorch reports problems, if there are any
  int both = 0;
  ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

TorchMaster find_torch_master(const std::string& host, bool is_here, const Meeting& meeting) {
  std::random_device random;
  auto draw = [&] { return static_cast<uint16_t>(kFirstTorchPort + random() % kTorchPorts); };
  TorchMaster master{.address = is_here ? meeting.addresses.substr(0, meeting.addresses.find(',')) : host,
                     .port = draw(),
                     .run_id = fmt::format("horovodrun-{:08x}", random())};
  for (int i = 0; is_here && i < kPortTries && !is_free(master.port); i++) master.port = draw();
  return master;
}

Variables torch_job_variables(const TorchMaster& master) {
  return {{"MASTER_ADDR", master.address},
          {"MASTER_PORT", std::to_string(master.port)},
          {"ROLE_NAME", "default"},
          {"TORCHELASTIC_RUN_ID", master.run_id},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};  // rank 0 serves the store
}

Variables torch_rank_variables(const Slot& slot, const Slot& first) {
  std::string rank = std::to_string(slot.rank), size = std::to_string(slot.size);
  return {{"RANK", rank},
          {"WORLD_SIZE", size},
          {"LOCAL_RANK", std::to_string(slot.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(slot.local_size)},
          {"GROUP_RANK", std::to_string(first.cross_rank)},
          {"GROUP_WORLD_SIZE", std::to_string(first.cross_size)},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", size}};
}

}  // namespace hvd::launcher
