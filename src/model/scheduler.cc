#include "model/scheduler.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/host_name.h"
#include "base/nodelist.h"
#include "base/number.h"

namespace hvd {
namespace {

constexpr int32_t kFirstPort = 20000, kPorts = 12000;  // below the ephemeral port range of Linux

Status bad(std::string text) { return {Code::invalid_argument, std::move(text)}; }

class Environment {
 public:
  explicit Environment(const std::function<const char*(const char* name)>& lookup) : lookup_(lookup) {}

  std::string text(const char* name) const {
    const char* value = lookup_(name);
    return value != nullptr ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }
  bool has_all(std::initializer_list<const char*> names) const {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return has(name); });
  }

  Status read(const char* name, int32_t& number) const {
    std::string value = text(name);
    number = read_number<int32_t>(value).value_or(-1);
    if (number >= 0) return {};
    return bad(value.empty() ? fmt::format("{} is not set, but other variables of this scheduler are", name)
                             : fmt::format("{}={} is not a number", name, value));
  }

 private:
  const std::function<const char*(const char* name)>& lookup_;
};

// Assumes consecutive ranks on each host, the same number on every host: no more can be known without asking other
// ranks. If the order is different, at least one rank notices it here.
Status place_between_hosts(std::string_view launcher, Config& c) {
  if (c.local_size == c.size) return {};
  if (c.local_size < 1 || c.size % c.local_size != 0 || c.rank % c.local_size != c.local_rank) {
    return bad(fmt::format(
        "{} gave rank {} of {} the local rank {} of {}; ranks must be consecutive on each host, the same number on "
        "each. Start the job with horovodrun, or map ranks by slot",
        launcher, c.rank, c.size, c.local_rank, c.local_size));
  }
  c.cross_rank = c.rank / c.local_size;
  c.cross_size = c.size / c.local_size;
  if (!c.rendezvous_addr.empty() && !c.secret_key.empty()) return {};
  return bad(fmt::format(
      "{} started {} processes on several hosts, but gives no address for them to connect to. Export "
      "HOROVOD_GLOO_RENDEZVOUS_ADDR (an address of the first host), HOROVOD_GLOO_RENDEZVOUS_PORT (a free port "
      "there) and _HOROVOD_SECRET_KEY (openssl rand -hex 32) to all of them; or use MPI for the rendezvous, with "
      "HOROVOD_CONTROLLER=mpi; or start the job with horovodrun",
      launcher, c.size));
}

Status place_by_open_mpi(const Environment& environment, Config& c) {
  for (const Status& status :
       {environment.read("OMPI_COMM_WORLD_RANK", c.rank), environment.read("OMPI_COMM_WORLD_SIZE", c.size),
        environment.read("OMPI_COMM_WORLD_LOCAL_RANK", c.local_rank),
        environment.read("OMPI_COMM_WORLD_LOCAL_SIZE", c.local_size)}) {
    if (!status.ok()) return status;
  }
  // Open MPI 5 sets the first, version 4 the others; the folder name contains the process id of mpirun.
  c.job = fmt::format("ompi/{}/{}/{}", environment.text("PMIX_NAMESPACE"), environment.text("OMPI_MCA_ess_base_jobid"),
                      environment.text("OMPI_MCA_orte_jobfam_session_dir"));
  return place_between_hosts("mpirun", c);
}

// The process that started the ranks of this host (MPICH's proxy); it distinguishes jobs when nothing else does. There
// may be a script between it and this process.
pid_t find_proxy() {
  pid_t parent = ::getppid();
  for (pid_t pid = parent; pid > 1;) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text, '\0');
    size_t begin = text.find('('), end = text.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 4 > text.size()) break;
    if (text.substr(begin + 1, end - begin - 1).starts_with("hydra")) return pid;
    pid = 0;
    std::from_chars(text.data() + end + 4, text.data() + text.size(), pid);
  }
  return parent;
}

Status place_by_pmi(const Environment& environment, Config& c) {
  for (const Status& status : {environment.read("PMI_RANK", c.rank), environment.read("PMI_SIZE", c.size)}) {
    if (!status.ok()) return status;
  }
  if (c.size == 1) return {};
  bool is_cray = environment.has("PMI_LOCAL_RANK");
  if (!is_cray && !environment.has("MPI_LOCALRANKID")) {
    return bad(
        fmt::format("PMI_SIZE is {}, but no variable says which of the processes are on this host (MPI_LOCALRANKID, "
                    "MPI_LOCALNRANKS); start "
                    "the job with horovodrun, or set HOROVOD_RANK, HOROVOD_SIZE and the others",
                    c.size));
  }
  for (const Status& status : {environment.read(is_cray ? "PMI_LOCAL_RANK" : "MPI_LOCALRANKID", c.local_rank),
                               environment.read(is_cray ? "PMI_LOCAL_SIZE" : "MPI_LOCALNRANKS", c.local_size)}) {
    if (!status.ok()) return status;
  }
  c.job = fmt::format("pmi/{}", find_proxy());
  return place_between_hosts("mpirun", c);
}

bool is_slurm_step(const Environment& environment) {
  // A batch script has SLURM_PROCID too, but is not a task of a step.
  return environment.has_all({"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                              "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"});
}

// Slurm may offer PMI to its own tasks; its own variables are then more complete than PMI's.
bool is_pmi_of_slurm(const Environment& environment) {
  return is_slurm_step(environment) && environment.text("PMI_RANK") == environment.text("SLURM_PROCID") &&
         environment.text("PMI_SIZE") == environment.text("SLURM_STEP_NUM_TASKS");
}

// Where the tasks of a step on several hosts connect: its first node, at a port derived from job and step.
Status meet_by_slurm(const Environment& environment, int32_t job, int32_t step, Config& c) {
  if (c.secret_key.empty()) {
    return bad(fmt::format(
        "srun started {} tasks on several hosts, but they have no key to authenticate each other. Put this line before "
        "srun: export _HOROVOD_SECRET_KEY=$(openssl rand -hex 32); or rendezvous over MPI: srun --mpi=pmix for Open "
        "MPI, --mpi=pmi2 for MPICH",
        c.size));
  }
  if (c.rendezvous_addr.empty()) {
    auto nodes = expand_nodelist(environment.text("SLURM_STEP_NODELIST"));
    if (!nodes.ok()) return nodes.status();
    c.rendezvous_addr = (*nodes)[0];
  }
  if (c.rendezvous_port <= 0)
    c.rendezvous_port = kFirstPort + static_cast<int32_t>((int64_t{job} * 37 + step) % kPorts);
  return {};
}

Status place_by_slurm(const Environment& environment, Config& c) {
  int32_t job = 0, step = 0, node = 0;
  for (const Status& status :
       {environment.read("SLURM_PROCID", c.rank), environment.read("SLURM_STEP_NUM_TASKS", c.size),
        environment.read("SLURM_LOCALID", c.local_rank), environment.read("SLURM_NODEID", node),
        environment.read("SLURM_JOB_ID", job)}) {
    if (!status.ok()) return status;
  }
  if (c.size == 1) {  // also the shell of salloc, whose other variables describe the whole allocation
    c.rank = c.local_rank = 0;
    return {};
  }
  if (Status status = environment.read("SLURM_STEP_ID", step); !status.ok()) return status;
  auto tasks = expand_counts(environment.text("SLURM_STEP_TASKS_PER_NODE"));
  if (!tasks.ok()) return tasks.status();
  if (static_cast<size_t>(node) >= tasks->size()) {
    return bad(fmt::format("SLURM_NODEID={}, but SLURM_STEP_TASKS_PER_NODE={} names {} nodes", node,
                           environment.text("SLURM_STEP_TASKS_PER_NODE"), tasks->size()));
  }
  auto has_peer = [&](int count) { return count > c.local_rank; };
  c.local_size = (*tasks)[static_cast<size_t>(node)];
  c.cross_rank = static_cast<int32_t>(std::count_if(tasks->begin(), tasks->begin() + node, has_peer));
  c.cross_size = static_cast<int32_t>(std::count_if(tasks->begin(), tasks->end(), has_peer));
  c.job = fmt::format("slurm/{}.{}", job, step);
  return c.local_size == c.size ? Status() : meet_by_slurm(environment, job, step, c);
}

}  // namespace

Status place_by_scheduler(const std::function<const char*(const char* name)>& lookup, Config& config) {
  Environment environment(lookup);
  if (environment.has("HOROVOD_RANK") || environment.has("HOROVOD_SIZE")) return {};
  Status (*place)(const Environment&, Config&) = nullptr;
  if (environment.has("OMPI_COMM_WORLD_RANK") || environment.has("OMPI_COMM_WORLD_SIZE")) {
    place = place_by_open_mpi;
  } else if ((environment.has("PMI_RANK") || environment.has("PMI_SIZE")) && !is_pmi_of_slurm(environment)) {
    place = place_by_pmi;
  } else if (is_slurm_step(environment)) {
    place = place_by_slurm;
  }
  if (place == nullptr) return {};
  config.started_by = place == place_by_slurm ? "srun" : "mpirun";
  if (Status status = place(environment, config); !status.ok()) return status;
  if (config.size > 1 && !environment.has("HOROVOD_HOSTNAME")) {
    if (std::string name = host_name(); !name.empty()) config.hostname = name;
  }
  return {};
}

MpiLaunch mpi_launch(const std::function<const char*(const char* name)>& lookup) {
  Environment environment(lookup);
  if (environment.has("HOROVOD_RANK") || environment.has("HOROVOD_SIZE")) return MpiLaunch::none;
  Config told;
  // errors are ignored: the rendezvous address may be missing, which MPI would replace
  (void)place_by_scheduler(lookup, told);
  bool has_pmix = environment.has_all({"PMIX_RANK", "PMIX_NAMESPACE"});
  // PMIx does not give the number of processes; the shell of an allocation may have set it, too
  if (told.started_by.empty()) {
    return has_pmix && !environment.has("SLURM_JOB_ID") ? MpiLaunch::several_hosts : MpiLaunch::none;
  }
  bool has_pmi = has_pmix || environment.has("PMI_RANK");
  if (told.started_by == "srun" && (told.size == 1 || !has_pmi)) return MpiLaunch::none;
  return told.local_size == told.size ? MpiLaunch::one_host : MpiLaunch::several_hosts;
}

MpiLaunch expected_mpi(const std::function<const char*(const char* name)>& lookup) {
  Environment environment(lookup);
  if (environment.has("HOROVOD_CONTROLLER") || environment.has("HOROVOD_GLOO_RENDEZVOUS_ADDR")) return MpiLaunch::none;
  MpiLaunch launch = mpi_launch(lookup);
  if (launch != MpiLaunch::several_hosts || !environment.has("_HOROVOD_SECRET_KEY")) return launch;
  Config told;
  (void)place_by_scheduler(lookup, told);
  return told.started_by == "srun" ? MpiLaunch::none : launch;
}

}  // namespace hvd
