#include "launcher/mpi/meet_under_mpi.h"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>

#include "base/host_name.h"
#include "launcher/mpi/plugin.h"
#include "launcher/workers/meeting.h"
#include "net/key.h"
#include "net/tls.h"

namespace hvd::launcher {
namespace {

constexpr const char* kController = "HOROVOD_CONTROLLER";
constexpr const char* kOperations = "HOROVOD_CPU_OPERATIONS";
constexpr int kFirstPort = 20000, kPorts = 12000;  // below the ephemeral port range

// An empty value counts as not set.
const char* value_of(const Lookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool is_mpi(const char* value) { return value != nullptr && ::strcasecmp(value, "mpi") == 0; }

Result<std::string> plugin_path(const std::string& program, const Mpirun* mpirun, const Lookup& lookup, bool dry_run,
                                std::vector<std::string>& notes) {
  if (const char* chosen = value_of(lookup, "HOROVOD_MPI_LIBRARY")) return std::string(chosen);
  auto plugin = find_plugin(program, mpirun, lookup);
  if (!plugin.ok()) return plugin.status();
  if (dry_run || is_built(*plugin)) return plugin->path;
  notes.push_back(fmt::format("note: built Horovod's MPI library for {}: {}",
                              mpirun ? describe(mpirun->version) : plugin->mpicc, plugin->path));
  Status status = build(*plugin);
  return status.ok() ? Result<std::string>(plugin->path) : status;
}

// The ranks connect to rank 0's host. The port is very likely free there; the other hosts know the name.
Status meet_by_variables(const MpiJob& job, Variables& variables) {
  if (job.hosts.size() == 1) return {};  // on one host they find each other without variables
  auto key = Key::random();
  if (!key.ok()) return key.status();
  auto nonce = random_nonce();
  if (!nonce.ok()) return nonce.status();
  int port = kFirstPort + (std::to_integer<int>((*nonce)[0]) * 256 + std::to_integer<int>((*nonce)[1])) % kPorts;
  const Host& first = job.hosts[0];
  bool has_own_name = first.name != "localhost" && !first.name.starts_with("127.") && first.name != "::1";
  variables.emplace_back("HOROVOD_GLOO_RENDEZVOUS_ADDR", has_own_name ? first.name : host_name());
  variables.emplace_back("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port));
  variables.emplace_back("_HOROVOD_SECRET_KEY", key->hex());
  return {};
}

}  // namespace

Result<MeetingUnderMpi> meet_under_mpi(const Options& options, const MpiJob& job, const Mpirun* mpirun,
                                       const std::string& program, const Lookup& lookup, bool dry_run) {
  MeetingUnderMpi meeting;
  if (wants_tls(options)) {
    auto identity = make_tls_identity();
    if (!identity.ok()) return identity.status();
    meeting.variables = {{"HOROVOD_TLS", "1"}, {"_HOROVOD_TLS_IDENTITY", *identity}};
  }
  const char* controller = value_of(lookup, kController);
  const char* operations = value_of(lookup, kOperations);
  bool is_asked_for = is_mpi(controller) || is_mpi(operations);
  if (is_asked_for || controller == nullptr) {
    auto path = plugin_path(program, mpirun, lookup, dry_run, meeting.notes);
    if (path.ok()) {
      meeting.variables.emplace_back("HOROVOD_MPI_LIBRARY", *path);
      if (controller == nullptr) meeting.variables.emplace_back(kController, "mpi");
      if (operations == nullptr) meeting.variables.emplace_back(kOperations, "mpi");
      return meeting;
    }
    if (is_asked_for) return path.status();
    meeting.notes = {
        fmt::format("note: mpirun starts the ranks, which then communicate without MPI: {}", path.status().message())};
    meeting.variables.emplace_back(kController, "gloo");  // so that the ranks do not try MPI again
  }
  if (Status status = meet_by_variables(job, meeting.variables); !status.ok()) return status;
  return meeting;
}

}  // namespace hvd::launcher
