#include "model/config.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "base/joined.h"
#include "model/knob_slot.h"
#include "model/plan.h"
#include "model/scheduler.h"
#include "model/shared_knobs.h"

namespace hvd {
namespace {

struct Knob {
  const char* name;
  Slot (*slot)(Config&);
  Range range;       // of numbers; for other types the slot says what is allowed
  const char* text;  // one sentence
  Scope same = Scope::none;
};

constexpr double kMaxRanks = 1 << 20;
constexpr double kMaxBytes = int64_t{1} << 40;
constexpr double kMaxSeconds = 1e9;
constexpr double kMaxCount = 1e9;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kDefaultCacheCapacity = 1024;

// Defaults are those of Config, and of Tuning where Config leaves the choice to the tuner.
// clang-format off
constexpr Knob kKnobs[] = {
    {"HOROVOD_RANK", [](Config& c) -> Slot { return &c.rank; }, {0, kMaxRanks - 1},
     "This process's rank in the world; the launcher sets it."},
    {"HOROVOD_SIZE", [](Config& c) -> Slot { return &c.size; }, {1, kMaxRanks},
     "Ranks in the world; the launcher sets it."},
    {"HOROVOD_LOCAL_RANK", [](Config& c) -> Slot { return &c.local_rank; }, {0, kMaxRanks - 1},
     "This process's rank among the ranks of its host; the launcher sets it."},
    {"HOROVOD_LOCAL_SIZE", [](Config& c) -> Slot { return &c.local_size; }, {1, kMaxRanks},
     "Ranks on this host; the launcher sets it."},
    {"HOROVOD_CROSS_RANK", [](Config& c) -> Slot { return &c.cross_rank; }, {0, kMaxRanks - 1},
     "This host's index among the hosts that have this local rank; the launcher sets it."},
    {"HOROVOD_CROSS_SIZE", [](Config& c) -> Slot { return &c.cross_size; }, {1, kMaxRanks},
     "Hosts that have this local rank; the launcher sets it."},
    {"HOROVOD_HOSTNAME", [](Config& c) -> Slot { return &c.hostname; }, {},
     "Name of this host; ranks with the same name share memory."},
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", [](Config& c) -> Slot { return &c.rendezvous_addr; }, {},
     "Address of the rendezvous server; unset means a world of one process, or what srun or mpirun specify."},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", [](Config& c) -> Slot { return &c.rendezvous_port; }, {-1, 65535},
     "Port of the rendezvous server."},
    {"_HOROVOD_SECRET_KEY", [](Config& c) -> Slot { return HexKey{&c.secret_key}; }, {},
     "Key of the job, which authenticates every connection; the launcher sets it."},
    {"HOROVOD_START_TIMEOUT", [](Config& c) -> Slot { return &c.start_timeout; }, {0, kMaxSeconds},
     "Seconds allowed for the ranks to find each other."},
    {"HOROVOD_CONTROLLER", [](Config& c) -> Slot { return MpiOrGloo{&c.controller}; }, {},
     "mpi takes ranks from MPI and forms the world over it; gloo uses what the launcher or mpirun sets; unset is "
     "mpi in jobs of mpirun and srun --mpi if MPI is usable, otherwise gloo."},
    {"HOROVOD_CPU_OPERATIONS", [](Config& c) -> Slot { return MpiOrGloo{&c.cpu_operations}; }, {},
     "mpi moves data with MPI's collectives; gloo, like unset, with the engine's own over shared memory and TCP.",
     Scope::in_world},
    {"HOROVOD_MPI_LIBRARY", [](Config& c) -> Slot { return &c.mpi_library; }, {},
     "The MPI plugin, as horovodrun --build-mpi prints it; if unset, Python builds it once per MPI."},
    {"HOROVOD_MPI_THREADS_DISABLE", [](Config& c) -> Slot { return Negated{&c.mpi_threads}; }, {},
     "Initialise MPI without support for calls from several threads."},
    {"HOROVOD_MPI_CHUNK", [](Config& c) -> Slot { return &c.mpi_chunk; }, {1, int64_t{1} << 30},
     "Elements, or bytes if nothing is reduced, per MPI call; larger tensors take several calls.",
     Scope::in_world},

    {"HOROVOD_GPU_OPERATIONS", [](Config& c) -> Slot { return &c.gpu_operations; }, {},
     "nccl requires NCCL on every rank; host copies GPU tensors through host memory; unset: NCCL if all ranks have it."},
    {"HOROVOD_NCCL_LIB", [](Config& c) -> Slot { return &c.nccl_library; }, {},
     "File of the NCCL library, or its folder; if unset, the one that the framework has loaded or the first found."},
    {"HOROVOD_NCCL_HOME", [](Config& c) -> Slot { return &c.nccl_home; }, {},
     "Folder of an NCCL installation, whose lib folder is searched after HOROVOD_NCCL_LIB."},
    {"HOROVOD_CUDA_HOME", [](Config& c) -> Slot { return &c.cuda_home; }, {},
     "Folder of a CUDA installation, whose lib folders are searched for NCCL after HOROVOD_NCCL_HOME."},
    {"HOROVOD_NUM_NCCL_STREAMS", [](Config& c) -> Slot { return &c.nccl_streams; }, {1, 16},
     "Streams that operations on a GPU use in turn, each with its own communicators and fusion buffer.",
     Scope::in_world},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", [](Config& c) -> Slot { return &c.batch_gpu_copies; }, {},
     "Copy the tensors of a fusion with one kernel; 0: one copy per tensor."},
    {"HOROVOD_ENABLE_ASYNC_COMPLETION", [](Config& c) -> Slot { return &c.async_completion; }, {},
     "1: GPU operations are synchronized by the stream that uses the result; 0: by the host; unset: 1 for gradients alone."},

    {"HOROVOD_ELASTIC", [](Config& c) -> Slot { return &c.elastic; }, {},
     "Elastic job: the launcher assigns the rank of this process whenever a world is formed; the launcher sets this.",
     Scope::in_world},
    {"HOROVOD_WORKER_ID", [](Config& c) -> Slot { return &c.worker_id; }, {-1, kMaxCount},
     "Number of this process in an elastic job, whatever its rank; the launcher sets it."},
    {"HOROVOD_ELASTIC_TIMEOUT", [](Config& c) -> Slot { return &c.elastic_timeout; }, {0, kMaxSeconds},
     "Seconds that an elastic job waits for enough slots, and a process for its place."},

    {"HOROVOD_TLS", [](Config& c) -> Slot { return Strict{&c.tls}; }, {},
     "Encrypt every connection between hosts, control and data, with TLS 1.3.",
     Scope::in_world},
    {"_HOROVOD_TLS_IDENTITY", [](Config& c) -> Slot { return HexKey{&c.tls_identity}; }, {},
     "Certificate of the job and its private key, PEM in hexadecimal; the launcher sets it."},
    {"HOROVOD_NETWORK_INTERFACES", [](Config& c) -> Slot { return NameList{&c.network_interfaces}; }, {},
     "Network interfaces to listen on and whose addresses are published; unset means all."},
    {"HOROVOD_GLOO_IFACE", [](Config& c) -> Slot { return NameList{&c.network_interfaces}; }, {},
     "The same under a name that scripts use; the names in both are combined."},

    {"HOROVOD_TCP_STREAMS", [](Config& c) -> Slot { return &c.tcp_streams; }, {0, 64},
     "Data connections between two ranks of different hosts; 0 measures 1, 2 and 4 and uses the fastest."},
    {"HOROVOD_TCP_CONGESTION", [](Config& c) -> Slot { return &c.tcp_congestion; }, {},
     "Congestion control of data connections: default is the host's; auto prefers reno to bbr on very short paths."},
    {"HOROVOD_HEARTBEAT_SECONDS", [](Config& c) -> Slot { return &c.heartbeat_time; }, {0, kMaxSeconds},
     "Seconds between heartbeats of each process, in worlds of several hosts.",
     Scope::in_world},
    {"HOROVOD_SILENCE_SECONDS", [](Config& c) -> Slot { return &c.silence_time; }, {1, kMaxSeconds},
     "A process or host that is silent for this many seconds is lost.",
     Scope::in_world},

    {"HOROVOD_FUSION_THRESHOLD", [](Config& c) -> Slot { return &c.fusion_threshold; }, {0, kMaxBytes},
     "Tensors are fused up to this many bytes; 0 turns fusion off."},
    {"HOROVOD_CYCLE_TIME", [](Config& c) -> Slot { return &c.cycle_time_ms; }, {0, 60000},
     "Milliseconds to wait for more tensors before fusing; 0 runs ready tensors immediately."},
    {"HOROVOD_CACHE_CAPACITY", [](Config& c) -> Slot { return &c.cache_capacity; }, {0, kMaxCount},
     "Tensor names whose negotiation is cached; 0 turns the cache off."},
    {"HOROVOD_DISABLE_GROUP_FUSION", [](Config& c) -> Slot { return &c.disable_group_fusion; }, {},
     "Fuse grouped tensors only within their group."},
    {"HOROVOD_DYNAMIC_PROCESS_SETS", [](Config& c) -> Slot { return &c.dynamic_process_sets; }, {},
     "Allow adding and removing process sets after init."},

    {"HOROVOD_STALL_CHECK_DISABLE", [](Config& c) -> Slot { return Negated{&c.stall_check}; }, {},
     "Do not look for tensors that only some ranks have submitted."},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", [](Config& c) -> Slot { return &c.stall_warning_time; }, {0, kMaxSeconds},
     "Warn about tensors that some ranks have not submitted for this many seconds."},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", [](Config& c) -> Slot { return &c.stall_shutdown_time; }, {0, kMaxSeconds},
     "Shut down when a tensor is stalled for this many seconds; 0 means never."},
    {"HOROVOD_COLLECTIVE_TIMEOUT_SECONDS", [](Config& c) -> Slot { return &c.collective_timeout; }, {0, kMaxSeconds},
     "Fail a collective that takes more than this many seconds; 0 means never."},

    {"HOROVOD_SHM_RING_BYTES", [](Config& c) -> Slot { return &c.shm_ring_bytes; }, {64, kMaxBytes, kCacheLine},
     "Size in bytes of each rank's shared-memory ring for small tensors.",
     Scope::on_host},
    {"HOROVOD_SHM_CHUNK_BYTES", [](Config& c) -> Slot { return &c.shm_chunk_bytes; }, {64, kMaxBytes, kCacheLine},
     "Large tensors go through shared memory in chunks of this many bytes.",
     Scope::on_host},
    {"HOROVOD_SHM_CHUNKS", [](Config& c) -> Slot { return &c.shm_chunks; }, {1, 65536},
     "Chunks in flight.",
     Scope::on_host},
    {"HOROVOD_ONE_SHOT_LIMIT", [](Config& c) -> Slot { return &c.one_shot_limit; }, {0, kMaxBytes},
     "Tensors of up to this many bytes are exchanged in one step instead of through the chunk pipeline.",
     Scope::on_host},
    {"HOROVOD_SPIN_US", [](Config& c) -> Slot { return &c.spin_us; }, {0, 1e9},
     "Microseconds to spin before yielding the core."},
    {"HOROVOD_YIELD_US", [](Config& c) -> Slot { return &c.yield_us; }, {0, 1e9},
     "Microseconds to yield the core before sleeping."},

    {"HOROVOD_HIERARCHICAL_ALLREDUCE", [](Config& c) -> Slot { return &c.hierarchical_allreduce; }, {},
     "Hint for several hosts: 1 reduces inside each host first, 0 asks for one ring over all ranks; unset is like 1.",
     Scope::in_world},
    {"HOROVOD_HIERARCHICAL_ALLGATHER", [](Config& c) -> Slot { return &c.hierarchical_allgather; }, {},
     "Hint for several hosts: 1 sends each block once per host, 0 once per rank; unset is like 1.",
     Scope::in_world},
    {"HOROVOD_TORUS_ALLREDUCE", [](Config& c) -> Slot { return &c.torus_allreduce; }, {},
     "Hint for several hosts: 1 reduces along the local ranks and then along the hosts, which unset does as well.",
     Scope::in_world},

    {"HOROVOD_OBSERVE", [](Config& c) -> Slot { return &c.observe; }, {},
     "Count operations and remember the last ones, for hvd.metrics(), horovodrun --top and reports of failures."},
    {"HOROVOD_METRICS_PORT", [](Config& c) -> Slot { return &c.metrics_port; }, {0, 65535},
     "On every host, serve the metrics of its ranks at this port, for Prometheus; 0 takes any; unset means no metrics."},
    {"HOROVOD_METRICS_TOKEN", [](Config& c) -> Slot { return &c.metrics_token; }, {},
     "What a scraper has to send as its bearer token; unset lets everyone read the metrics who reaches the port."},
    {"HOROVOD_STATUS_PORT", [](Config& c) -> Slot { return &c.status_port; }, {0, 65535},
     "Where the launcher runs, serve a live page about the job at this port; 0 takes any; unset means no page."},
    {"HOROVOD_OBSERVE_ADDRESS", [](Config& c) -> Slot { return &c.observe_address; }, {},
     "Address at which metrics and the live page are served; unset is 127.0.0.1, which other hosts cannot reach."},
    {"HOROVOD_DUMP_DIR", [](Config& c) -> Slot { return &c.dump_dir; }, {},
     "Folder for what is gathered when a job fails or stalls; none writes nothing; unset is a private one in TMPDIR."},
    {"HOROVOD_TIMELINE", [](Config& c) -> Slot { return &c.timeline; }, {},
     "File for the timeline, written from init on; DYNAMIC waits for start_timeline."},
    {"HOROVOD_TIMELINE_MARK_CYCLES", [](Config& c) -> Slot { return &c.timeline_mark_cycles; }, {},
     "Mark cycles in the timeline."},
    {"HOROVOD_TIMELINE_ALL_RANKS", [](Config& c) -> Slot { return &c.timeline_all_ranks; }, {},
     "Record a timeline on every rank, not on rank 0 only."},
    {"HOROVOD_AUTOTUNE", [](Config& c) -> Slot { return &c.autotune; }, {},
     "Tune the knobs that are not set, while the job runs."},
    {"HOROVOD_AUTOTUNE_LOG", [](Config& c) -> Slot { return &c.autotune_log; }, {},
     "File for the autotuner's samples, as CSV."},
    {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", [](Config& c) -> Slot { return &c.autotune_warmup_samples; }, {0, kMaxCount},
     "Samples that the autotuner discards before it starts."},
    {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", [](Config& c) -> Slot { return &c.autotune_steps_per_sample; },
     {1, kMaxCount}, "Training steps in one sample of the autotuner."},
    {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", [](Config& c) -> Slot { return &c.autotune_bayes_opt_max_samples; },
     {1, 1000}, "Samples that the autotuner takes before it chooses the best."},
    {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
     [](Config& c) -> Slot { return &c.autotune_gaussian_process_noise; }, {0, 1},
     "Noise level that the autotuner assumes for its samples."},
    {"HOROVOD_LOG_LEVEL", [](Config& c) -> Slot { return &c.log.level; }, {},
     "Lowest level that is logged; any other value means warning."},
    {"HOROVOD_LOG_HIDE_TIME", [](Config& c) -> Slot { return &c.log.hide_time; }, {},
     "Omit the time from log lines."},
    {"HOROVOD_LOG_FORMAT", [](Config& c) -> Slot { return TextOrJson{&c.log.is_json}; }, {},
     "json writes every log line as a JSON object, with time, level, file, line, pid, rank and message."},

    {"HOROVOD_BACKENDS", [](Config& c) -> Slot { return &c.backends; }, {},
     "Libraries of additional backends, tried in this order before the built-in one.",
     Scope::in_world},
    {"HOROVOD_THREAD_AFFINITY", [](Config& c) -> Slot { return &c.thread_affinity; }, {0, 65535},
     "Cores that the engine threads are bound to, one for each local rank, separated by commas."},
};
// clang-format on

Config default_config() {
  Config config;
  config.fusion_threshold = Tuning{}.fusion_threshold;
  config.cycle_time_ms = Tuning{}.cycle_time_ms;
  config.cache_capacity = kDefaultCacheCapacity;
  config.one_shot_limit = Tuning{}.one_shot_limit;
  return config;
}

// Values that mean the same become the same text.
Config comparable(Config config) {
  config.one_shot_limit = config.one_shot_limit.value_or(Tuning{}.one_shot_limit);
  config.hierarchical_allreduce = config.hierarchical_allreduce.value_or(true);
  config.hierarchical_allgather = config.hierarchical_allgather.value_or(true);
  config.torus_allreduce = config.torus_allreduce.value_or(false);
  if (config.cpu_operations.empty()) config.cpu_operations = "gloo";
  // their folder may differ between hosts
  for (std::string& path : config.backends) path = path.substr(path.rfind('/') + 1);
  return config;
}

Status bad_value(const Knob& knob, const char* value, Config& config) {
  Slot slot = knob.slot(config);
  std::string allowed = allowed_text(slot, knob.range);
  if (std::holds_alternative<HexKey>(slot)) {  // a key is never shown
    return {Code::invalid_argument, fmt::format("{} must be {}", knob.name, allowed)};
  }
  return {Code::invalid_argument, fmt::format("{}={} is not valid: it must be {}", knob.name, value, allowed)};
}

Status check_place(const char* rank_name, int32_t rank, const char* size_name, int32_t size) {
  if (rank < size) return {};
  return {Code::invalid_argument, fmt::format("{}={} must be less than {}={}", rank_name, rank, size_name, size)};
}

Status check_limit(const char* name, int64_t value, const char* limit_name, int64_t limit) {
  if (value <= limit) return {};
  return {Code::invalid_argument, fmt::format("{}={} must not exceed {}={}", name, value, limit_name, limit)};
}

// Constraints between knobs.
Status check_together(const Config& c) {
  for (const Status& check : {check_place("HOROVOD_RANK", c.rank, "HOROVOD_SIZE", c.size),
                              check_place("HOROVOD_LOCAL_RANK", c.local_rank, "HOROVOD_LOCAL_SIZE", c.local_size),
                              check_place("HOROVOD_CROSS_RANK", c.cross_rank, "HOROVOD_CROSS_SIZE", c.cross_size),
                              check_limit("HOROVOD_LOCAL_SIZE", c.local_size, "HOROVOD_SIZE", c.size),
                              check_limit("HOROVOD_CROSS_SIZE", c.cross_size, "HOROVOD_SIZE", c.size),
                              check_limit("HOROVOD_ONE_SHOT_LIMIT", c.one_shot_limit.value_or(0),
                                          "HOROVOD_SHM_RING_BYTES", c.shm_ring_bytes)}) {
    if (!check.ok()) return check;
  }
  if (c.heartbeat_time <= 0 || c.heartbeat_time >= c.silence_time) {
    return {Code::invalid_argument,
            fmt::format("HOROVOD_HEARTBEAT_SECONDS={} must be more than 0 and less than HOROVOD_SILENCE_SECONDS={}",
                        c.heartbeat_time, c.silence_time)};
  }
  if (!c.gpu_operations.empty() && c.gpu_operations != "nccl" && c.gpu_operations != "host") {
    // Upstream's build accepts NCCL or MPI here, and users set them in Dockerfiles.
    if (c.gpu_operations != "NCCL" && c.gpu_operations != "MPI") {
      return {Code::invalid_argument, fmt::format("HOROVOD_GPU_OPERATIONS={} must be nccl or host", c.gpu_operations)};
    }
  }
  if (!c.rendezvous_addr.empty() && c.rendezvous_port <= 0) {
    return {Code::invalid_argument,
            fmt::format("HOROVOD_GLOO_RENDEZVOUS_ADDR={} needs HOROVOD_GLOO_RENDEZVOUS_PORT", c.rendezvous_addr)};
  }
  if (!c.thread_affinity.empty() && c.thread_affinity.size() < static_cast<size_t>(c.local_size)) {
    return {Code::invalid_argument,
            fmt::format("HOROVOD_THREAD_AFFINITY={} must name a core for each of the {} local ranks",
                        joined(c.thread_affinity, ","), c.local_size)};
  }
  return {};
}

}  // namespace

Result<Config> parse_config(const std::function<const char*(const char* name)>& lookup) {
  Config config;
  for (const Knob& knob : kKnobs) {
    const char* value = lookup(knob.name);
    if (value == nullptr || *value == '\0') continue;  // `NAME= command` is how shells unset a variable
    if (!read_value(knob.slot(config), value, knob.range)) return bad_value(knob, value, config);
  }
  if (uses_mpi(config)) {
    Config told = config;
    // with MPI, ranks come from MPI; the size is checked against the scheduler's
    (void)place_by_scheduler(lookup, told);
    config.started_size = told.size > 1 ? told.size : 0;
    config.started_by = told.started_by;
  } else if (Status status = place_by_scheduler(lookup, config); !status.ok()) {
    return status;
  } else {
    config.mpi_launch = mpi_launch(lookup);
  }
  for (auto [name, place] :
       {std::pair("LD_LIBRARY_PATH", &config.library_path), {"CONDA_PREFIX", &config.conda_prefix}}) {
    if (const char* value = lookup(name)) *place = value;
  }
  if (Status status = check_together(config); !status.ok()) return status;
  return config;
}

bool uses_mpi(const Config& config) { return config.controller == "mpi" || config.cpu_operations == "mpi"; }

Result<Config> config_from_environment() {
  return parse_config([](const char* name) { return std::getenv(name); });
}

MpiLaunch expected_mpi_from_environment() {
  return expected_mpi([](const char* name) { return std::getenv(name); });
}

int process_manager_from_environment() {
  const char* text = std::getenv("PMI_FD");
  int fd = -1;
  if (text == nullptr || std::sscanf(text, "%d", &fd) != 1) return -1;
  return fd;
}

std::optional<KnobFacts> knob_facts(std::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == name) return KnobFacts{knob.text, knob.range.low, knob.range.high};
  }
  return std::nullopt;
}

std::string knobs_json() {
  Config defaults = default_config();
  auto knobs = nlohmann::ordered_json::array();
  for (const Knob& knob : kKnobs) {
    Slot slot = knob.slot(defaults);
    knobs.push_back({{"name", knob.name},
                     {"default", value_text(slot)},
                     {"range", allowed_text(slot, knob.range)},
                     {"text", knob.text},
                     {"same", knob.same == Scope::none      ? ""
                              : knob.same == Scope::on_host ? "host"
                                                            : "world"}});
  }
  return knobs.dump(1);
}

std::vector<SharedKnob> shared_knobs(const Config& config, Scope scope) {
  Config values = comparable(config);
  std::vector<SharedKnob> shared{{"the version of Horovod", HVD_VERSION}};
  for (const Knob& knob : kKnobs) {
    bool counts = knob.same == Scope::in_world || (knob.same == Scope::on_host && scope == Scope::on_host);
    if (counts) shared.push_back({knob.name, value_text(knob.slot(values))});
  }
  return shared;
}

}  // namespace hvd
