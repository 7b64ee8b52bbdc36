// Our collectives through the C ABI, by name, negotiated by the engine. The names stay the same, as in a training, so
// that all but the first operation find their plan in the cache.
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "sampler.h"

namespace {

using bench::Case;
using bench::Collective;

constexpr size_t kBurst = 100;  // tensors of a burst
constexpr unsigned kIdleSeconds = 2;

void expect(hvd_code code) {
  if (code == HVD_OK) [[likely]]
    return;
  errno = 0;
  bench::fail(hvd_last_error());
}

// A vector of float32 as one request, and the memory its fields point to.
struct Operation {
  Operation(hvd_kind kind, const std::string& label, float* in, size_t count, float* out) : name(label) {
    shape = static_cast<int64_t>(count);
    request.struct_size = sizeof request;
    request.kind = kind;
    request.reduce_op = HVD_SUM;
    request.name = name.c_str();
    request.prescale_factor = request.postscale_factor = 1.0;
    request.input = {.struct_size = sizeof(hvd_tensor),
                     .dtype = HVD_FLOAT32,
                     .device = HVD_HOST_DEVICE,
                     .ndim = 1,
                     .shape = &shape,
                     .data = in};
    request.output = request.input;
    request.output.data = out;
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  std::string name;
  int64_t shape;
  hvd_request request{};
};

void run(const Operation& operation, const hvd_submit_options* options) {
  hvd_handle handle = 0;
  expect(hvd_submit(&operation.request, 1, options, &handle));
  expect(hvd_wait(handle, -1));
  hvd_release(handle);
}

void measure_burst(bench::Sampler& sampler, const Case& c) {
  std::vector<std::unique_ptr<Operation>> operations;
  size_t count = c.count() / kBurst;
  for (size_t i = 0; i < kBurst; i++) {
    float* data = sampler.in() + i * count;
    operations.push_back(std::make_unique<Operation>(HVD_ALLREDUCE, "burst." + std::to_string(i), data, count, data));
  }
  std::vector<hvd_handle> handles(kBurst);
  sampler.measure(c, sampler.in(), [&] {
    for (size_t i = 0; i < kBurst; i++) expect(hvd_submit(&operations[i]->request, 1, nullptr, &handles[i]));
    for (hvd_handle handle : handles) {
      expect(hvd_wait(handle, -1));
      hvd_release(handle);
    }
  });
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Microseconds of CPU time in a second without operations, of the busiest rank.
void measure_idle(bench::Sampler& sampler, bench::Team& team, const Case& c) {
  team.barrier();
  double start = cpu_seconds();
  sleep(kIdleSeconds);
  double used = team.largest(cpu_seconds() - start) / kIdleSeconds;
  double probe = team.probe();  // once: in seconds the cores may well move, and it does not matter here
  sampler.print(c, used * 1e6, probe, probe, false);
}

void measure_case(bench::Sampler& sampler, bench::Team& team, const Case& c) {
  float *in = sampler.in(), *out = sampler.out();
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.wait_follows = 1;
  options.allocate = [](void* memory, int32_t, int32_t, int32_t, const int64_t*) { return memory; };
  options.allocate_context = out;
  std::string name = std::string(bench::name_of(c.collective)) + "." + std::to_string(c.bytes);
  auto measure = [&](hvd_kind kind, size_t count, float* output, const float* result) {
    Operation operation(kind, name, in, count, output);
    sampler.measure(c, result, [&] { run(operation, &options); });
  };
  switch (c.collective) {
    case Collective::async: options.wait_follows = 0; [[fallthrough]];
    case Collective::allreduce: measure(HVD_ALLREDUCE, c.count(), in, in); return;
    case Collective::broadcast: measure(HVD_BROADCAST, c.count(), in, in); return;
    case Collective::allgather: measure(HVD_ALLGATHER, sampler.share_of(c), nullptr, out); return;
    case Collective::alltoall: measure(HVD_ALLTOALL, c.count(), nullptr, out); return;
    case Collective::reducescatter: measure(HVD_REDUCESCATTER, c.count(), out, out); return;
    case Collective::barrier: measure(HVD_BARRIER, 0, nullptr, out); return;
    case Collective::burst: measure_burst(sampler, c); return;
    case Collective::idle: measure_idle(sampler, team, c); return;
  }
}

// For forked ranks; launched ones were told.
void describe_world(int rank, int size, int port) {
  auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  for (const char* name : {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK"}) set(name, std::to_string(rank));
  for (const char* name : {"HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"}) set(name, std::to_string(size));
  set("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
  set("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(port));
}

}  // namespace

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 0;
  int port = 1024 + getpid() % 60000;  // names the world; nothing listens there
  return bench::run_ranks(size, [&](int rank) {
    bench::Team team(rank, size);
    if (!bench::launched()) describe_world(rank, size, port);
    expect(hvd_init(0, nullptr, nullptr));
    team.pin();  // after hvd_init, which counts the cores that it may use
    bench::Sampler sampler(team, argc, argv);
    for (const Case& c : sampler.cases()) measure_case(sampler, team, c);
    expect(hvd_shutdown());
    hvd_mpi_end(0);  // where mpi.py has started this under mpirun
  });
}
