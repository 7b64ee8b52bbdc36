// The collectives of an MPI library. Compiled with the wrapper of each library, started by its mpirun.
// <ranks> on the command line is ignored: the launcher decides.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "sampler.h"

using bench::Case;
using bench::Collective;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::Team team(rank, size);
  team.pin();
  bench::Sampler sampler(team, argc, argv);
  float *in = sampler.in(), *out = sampler.out();
  for (const Case& c : sampler.cases()) {
    int count = static_cast<int>(c.count()), share = static_cast<int>(sampler.share_of(c));
    // A collective may return while bytes of it still wait for room in a socket, and they only move inside of MPI: a
    // rank that waits for the team elsewhere would keep the others waiting forever.
    auto measure = [&](const float* result, auto&& operation) {
      sampler.measure(c, result, operation, [] { MPI_Barrier(MPI_COMM_WORLD); });
    };
    switch (c.collective) {
      case Collective::allreduce:
        measure(in, [&] { MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
        break;
      case Collective::broadcast: measure(in, [&] { MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }); break;
      case Collective::allgather:
        measure(out, [&] { MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD); });
        break;
      case Collective::alltoall:
        measure(out, [&] { MPI_Alltoall(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD); });
        break;
      case Collective::reducescatter:
        measure(out, [&] { MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
        break;
      case Collective::barrier: measure(in, [&] { MPI_Barrier(MPI_COMM_WORLD); }); break;
      case Collective::async:  // an allreduce by a call that does not block
        measure(in, [&] {
          MPI_Request request;
          MPI_Iallreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        });
        break;
      case Collective::burst:
      case Collective::idle: bench::fail("not a collective of MPI");
    }
  }
  MPI_Finalize();
}
