// Where the workers of a job meet, and the secrets by which they know each other. A job on this machine alone needs a
// name only, which is a port that is bound and never listened on; one that spans hosts has a store in the launcher.
// Thread rule: made and destroyed by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/command_line/options.h"
#include "net/key.h"
#include "rendezvous/store_server.h"

namespace hvd::launcher {

// Where rank 0 listens for the others once it starts a process group of torch.distributed.
struct TorchMaster {
  std::string address;
  uint16_t port = 0;
  std::string run_id;
};

struct Meeting {
  std::string addresses;  // of the launcher, the preferred first, separated by commas
  uint16_t port = 0;
  Key key;                              // given to workers in their environment, never printed
  std::string tls_identity;             // empty: no TLS; as secret as the key
  std::vector<std::string> interfaces;  // that the workers should use; empty: all
  UniqueFd reserved;                    // keeps the port, on one machine
  std::shared_ptr<StoreServer> store;   // on several
  std::optional<TorchMaster> torch;     // with --torch-env
};

Result<Meeting> meet_on_this_machine(const Options& options, const Key& key);
// `take_worker`: of an elastic job, whose workers come to the same port.
Result<Meeting> meet_on_several_hosts(const Options& options, const Key& key,
                                      StoreServer::TakeWorker take_worker = nullptr);

// Of a listener: those that mean something to other hosts, or else all.
std::vector<std::string> published_addresses(const std::vector<Endpoint>& endpoints);

bool wants_tls(const Options& options);  // --tls or HOROVOD_TLS

// The key of options.key_file ("-": from stdin). Without it a new one; for an agent, from stdin.
Result<Key> key_of_job(const Options& options);

}  // namespace hvd::launcher
