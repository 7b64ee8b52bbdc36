// The collectives of Gloo over TCP, the way Horovod's CPU path calls them: options are built for every operation.
// BENCH_GLOO_ALLREDUCE chooses ring (default), bcube or halving_doubling. BENCH_NIC: the network interface (default:
// lo). BENCH_GLOO_STORE: a directory that is new for each run.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cerrno>
#include <cstdlib>
#include <exception>

#include "sampler.h"

namespace {

using bench::Case;
using bench::Collective;

std::shared_ptr<gloo::Context> connect(int rank, int size) {
  const char* directory = std::getenv("BENCH_GLOO_STORE");
  if (!directory) bench::fail("BENCH_GLOO_STORE is not set");
  gloo::transport::tcp::attr attributes;
  const char* nic = std::getenv("BENCH_NIC");
  attributes.iface = nic ? nic : "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(directory);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return context;
}

void measure_allreduce(bench::Sampler& sampler, const Case& c, const std::shared_ptr<gloo::Context>& context) {
  const char* chosen = std::getenv("BENCH_GLOO_ALLREDUCE");
  std::string algorithm = chosen ? chosen : "ring";
  float* in = sampler.in();
  if (algorithm == "halving_doubling") {
    gloo::AllreduceHalvingDoubling<float> allreduce(context, {in}, static_cast<int>(c.count()));
    sampler.measure(c, in, [&] { allreduce.run(); });
    return;
  }
  using Options = gloo::AllreduceOptions;
  auto kind = algorithm == "bcube" ? Options::Algorithm::BCUBE : Options::Algorithm::RING;
  void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  sampler.measure(c, in, [&] {
    Options options(context);
    options.setAlgorithm(kind);
    options.setOutput(in, c.count());
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  });
}

void measure_case(bench::Sampler& sampler, const Case& c, const std::shared_ptr<gloo::Context>& context) {
  float *in = sampler.in(), *out = sampler.out();
  size_t share = sampler.share_of(c);
  switch (c.collective) {
    case Collective::allreduce: measure_allreduce(sampler, c, context); return;
    case Collective::broadcast:
      sampler.measure(c, in, [&] {
        gloo::BroadcastOptions options(context);
        options.setRoot(0);
        options.setOutput(in, c.count());
        gloo::broadcast(options);
      });
      return;
    case Collective::allgather:
      sampler.measure(c, out, [&] {
        gloo::AllgatherOptions options(context);
        options.setInput(in, share);
        options.setOutput(out, c.count());
        gloo::allgather(options);
      });
      return;
    case Collective::alltoall:
      sampler.measure(c, out, [&] {
        gloo::AlltoallOptions options(context);
        options.setInput(in, c.count());
        options.setOutput(out, c.count());
        gloo::alltoall(options);
      });
      return;
    case Collective::reducescatter: {
      std::vector<int> counts(static_cast<size_t>(context->size), static_cast<int>(share));
      gloo::ReduceScatterHalvingDoubling<float> reducescatter(context, {in}, static_cast<int>(c.count()), counts);
      sampler.measure(c, in, [&] { reducescatter.run(); });
      return;
    }
    case Collective::barrier:
      sampler.measure(c, in, [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      });
      return;
    case Collective::burst:
    case Collective::async:
    case Collective::idle: bench::fail("not a collective of Gloo");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 0;
  return bench::run_ranks(size, [&](int rank) {
    try {
      bench::Team team(rank, size);
      team.pin();  // its threads inherit this
      auto context = connect(rank, size);
      bench::Sampler sampler(team, argc, argv);
      for (const Case& c : sampler.cases()) measure_case(sampler, c, context);
      team.barrier();  // no rank closes a connection that another still uses
    } catch (const std::exception& error) {
      errno = 0;
      bench::fail(error.what());
    }
  });
}
