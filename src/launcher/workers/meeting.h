// The rendezvous of a job's workers, and their shared secrets. A job on this machine only needs a name, which is a port
// that is bound and never listened on; a job that spans hosts has a store in the launcher. Thread rule: created and
// destroyed by one thread.
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

// Where rank 0 listens when the ranks start a process group of torch.distributed.
struct TorchMaster {
  std::string address;
  uint16_t port = 0;
  std::string run_id;
};

struct Meeting {
  std::string addresses;  // of the launcher, in order of preference, separated by commas
  uint16_t port = 0;
  Key key;                              // passed to workers in their environment, never printed
  std::string tls_identity;             // empty: no TLS; as secret as the key
  std::vector<std::string> interfaces;  // for the workers; empty: all
  UniqueFd reserved;                    // reserves the port, on one machine
  std::shared_ptr<StoreServer> store;   // on several machines
  std::optional<TorchMaster> torch;     // with --torch-env
};

Result<Meeting> meet_on_this_machine(const Options& options, const Key& key);
// `take_worker`: for an elastic job, whose workers connect to the same port.
Result<Meeting> meet_on_several_hosts(const Options& options, const Key& key,
                                      StoreServer::TakeWorker take_worker = nullptr);

// Of a listener: those that other hosts can use, or else all.
std::vector<std::string> published_addresses(const std::vector<Endpoint>& endpoints);

bool wants_tls(const Options& options);  // --tls or HOROVOD_TLS

// The key of options.key_file ("-": from stdin). Without the option a new one; for an agent, from stdin.
Result<Key> key_of_job(const Options& options);

}  // namespace hvd::launcher
