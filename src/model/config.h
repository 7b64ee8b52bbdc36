// Every knob of the engine, parsed once from the environment into an immutable Config. The table in config.cc (name,
// default, range, one sentence) is the only place that lists their names; docs/knobs.md is generated from it. No other
// code of the library calls getenv. A bad value is an error that names the variable, not a silent default. Thread rule:
// plain value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace hvd {

// Whether a launcher of MPI started this process: mpirun, mpiexec, or srun with --mpi.
enum class MpiLaunch { none, one_host, several_hosts };

struct Config {
  // Placement; the launcher sets these.
  int32_t rank = 0, size = 1, local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
  std::string hostname = "localhost";
  std::string job;              // names the job on this host if a scheduler, not the launcher, started the ranks
  std::string rendezvous_addr;  // empty: a world of one process, or of one host started by a scheduler
  int32_t rendezvous_port = -1;
  std::string secret_key;     // hex; the job's key
  double start_timeout = 30;  // seconds to form the world

  // MPI.
  std::string controller;      // "mpi": ranks and rendezvous come from MPI; "gloo" or empty: from the variables above
  std::string cpu_operations;  // "mpi": MPI moves the data; "gloo" or empty: the engine does
  std::string mpi_library;     // path of the plugin; empty: the caller must name one
  bool mpi_threads = true;     // request MPI_THREAD_MULTIPLE
  int64_t mpi_chunk = int64_t{1} << 30;    // elements, or bytes, in one call
  int32_t started_size = 0;                // processes that a scheduler says it started; 0: unknown
  std::string started_by;                  // the program that started them: "srun" or "mpirun"
  MpiLaunch mpi_launch = MpiLaunch::none;  // which ranks could rendezvous over MPI although nothing asks for it

  // GPUs.
  std::string gpu_operations;                      // "nccl", "host", or empty: NCCL if every rank can use it
  std::string nccl_library, nccl_home, cuda_home;  // where to look for NCCL first
  int32_t nccl_streams = 1;
  bool batch_gpu_copies = true;
  std::optional<bool> async_completion;    // of operations on a GPU; unset: of an optimizer's gradients
  std::string library_path, conda_prefix;  // LD_LIBRARY_PATH and CONDA_PREFIX

  // Elastic jobs.
  bool elastic = false;          // the launcher assigns this process's rank for every world
  int32_t worker_id = -1;        // constant for the life of this process; the launcher sets it
  double elastic_timeout = 600;  // seconds to wait for a rank

  // Connections between hosts.
  bool tls = false;
  std::string tls_identity;                     // hex; the job's certificate and its private key
  std::vector<std::string> network_interfaces;  // empty: all
  int32_t tcp_streams = 0;                      // per pair of ranks; 0: automatic
  std::string tcp_congestion = "auto";
  double heartbeat_time = 1;  // seconds
  double silence_time = 5;

  // Negotiation.
  std::optional<int64_t>
      fusion_threshold;  // nullopt here and below: not set by the user; the default or the tuner decides
  std::optional<double> cycle_time_ms;
  std::optional<int64_t> cache_capacity;
  bool disable_group_fusion = false;
  bool dynamic_process_sets = false;

  // Deadlines and stalls, seconds.
  bool stall_check = true;
  double stall_warning_time = 60;
  double stall_shutdown_time = 0;
  double collective_timeout = 0;

  // Shared memory.
  int64_t shm_ring_bytes = 4 << 20;  // per rank: one-shot messages rotate through it
  int64_t shm_chunk_bytes = 128 << 10;
  int64_t shm_chunks = 16;  // chunks in flight
  std::optional<int64_t> one_shot_limit;
  double spin_us = 20;     // before yielding; 0 when there are more ranks than cores
  double yield_us = 1000;  // before sleeping

  // Hints for process sets that span hosts; nullopt: our choice.
  std::optional<bool> hierarchical_allreduce, hierarchical_allgather, torus_allreduce;

  // Observation.
  bool observe = true;
  // The launcher uses these.
  std::optional<int64_t> metrics_port, status_port;
  std::string metrics_token, observe_address, dump_dir;
  std::string timeline;  // path, "DYNAMIC", or empty
  bool timeline_mark_cycles = false;
  bool timeline_all_ranks = false;
  bool autotune = false;
  std::string autotune_log;
  int32_t autotune_warmup_samples = 3;
  int32_t autotune_steps_per_sample = 10;
  int32_t autotune_bayes_opt_max_samples = 20;
  double autotune_gaussian_process_noise = 0.8;
  LogSettings log;

  // Execution.
  std::vector<std::string> backends;     // paths of backend libraries, tried in order before the built-in one
  std::vector<int32_t> thread_affinity;  // core of the engine thread, one per local rank
};

bool uses_mpi(const Config& config);

// The ranks among which a knob must have the same value.
enum class Scope { none, on_host, in_world };

// `lookup` returns a variable's value or nullptr. Tests pass their own; other code uses config_from_environment().
Result<Config> parse_config(const std::function<const char*(const char* name)>& lookup);
Result<Config> config_from_environment();
MpiLaunch expected_mpi_from_environment();  // see scheduler.h
int process_manager_from_environment();     // its descriptor (PMI_FD); -1: none

// What the table says about a knob, for the launcher's option that sets it.
struct KnobFacts {
  const char* text;  // one sentence
  double low, high;  // range of a number; both 0 for other types
};
std::optional<KnobFacts> knob_facts(std::string_view name);  // nullopt: no such knob
std::string knobs_json();  // [{"name": .., "default": .., "range": .., "text": .., "same": ..}, ...]

}  // namespace hvd
