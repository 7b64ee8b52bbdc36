// How the ranks of a world meet over MPI: it gives the rank and host of each, and carries the job's key and where rank
// 0 hosts the store. From there on everything goes as if the launcher had told. Blocks, with a deadline. Thread rule:
// any thread.
#pragma once

#include <memory>

#include "backends/mpi/mpi_session.h"
#include "model/config.h"
#include "model/world.h"
#include "rendezvous/store_server.h"

namespace hvd {

struct MpiMeeting {
  Config config;  // with place, host, job, key and rendezvous filled in
  Generation generation{0};
  std::shared_ptr<StoreServer> store;  // rank 0 of a world of several hosts
};

// Collective over the communicator. `generation` is that of rank 0's choice.
Result<MpiMeeting> meet_by_mpi(MpiSession& mpi, const MpiComm& comm, Config config, Generation generation,
                               TimePoint deadline);

}  // namespace hvd
