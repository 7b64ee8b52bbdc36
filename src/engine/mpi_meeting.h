// How the ranks of a world meet over MPI: it provides the rank and host of each, and transfers the job's key and the
// address of the store on rank 0. After that everything continues as if the launcher had set the variables. Blocks,
// with a deadline. Thread rule: any thread.
#pragma once

#include <memory>

#include "backends/mpi/mpi_session.h"
#include "model/config.h"
#include "model/world.h"
#include "rendezvous/store_server.h"

namespace hvd {

struct MpiMeeting {
  Config config;  // with ranks, host, job, key and rendezvous filled in
  Generation generation{0};
  std::shared_ptr<StoreServer> store;  // rank 0 of a world of several hosts
};

// Collective over the communicator. `generation` is that of rank 0's choice.
Result<MpiMeeting> meet_by_mpi(MpiSession& mpi, const MpiComm& comm, Config config, Generation generation,
                               TimePoint deadline);

}  // namespace hvd
