#include "engine/mpi_meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/host_name.h"
#include "net/credentials.h"

namespace hvd {
namespace {

// The record of every rank, and the answer of rank 0 and of the leader of a host. Plain memory: the ranks of an MPI job
// run the same library on the same kind of machine.
struct Seat {
  int32_t leader;      // the lowest rank of the host
  int32_t local_rank;  // among the ranks of the host
};
struct HostWord {
  int32_t leader;
  char name[256];
};
struct RootWord {
  char error[512];  // empty: none
  char key[256];    // hex
  char tls_identity[16384];
  char job[64];
  char addresses[2048];
  int32_t port;
  uint64_t generation;
};

template <size_t size>
Status write(char (&field)[size], std::string_view text, const char* what) {
  if (text.size() >= size) return {Code::invalid_argument, fmt::format("{} is too long: {} bytes", what, text.size())};
  std::memcpy(field, text.data(), text.size());
  field[text.size()] = 0;
  return {};
}

std::string addresses_of(const StoreServer& store) {
  std::string text;
  for (const Endpoint& endpoint : store.endpoints()) {
    if (endpoint.address.ip.is_link_local()) continue;  // meaningless on other hosts
    text += (text.empty() ? "" : ",") + to_text(endpoint.address.ip);
  }
  return text;
}

class Meeting {
 public:
  Meeting(MpiSession& mpi, const MpiComm& comm, Config config, Generation generation, TimePoint deadline)
      : mpi_(mpi), comm_(comm), deadline_(deadline) {
    met_.config = std::move(config);
    met_.generation = generation;
  }

  Result<MpiMeeting> meet() {
    if (Status status = take_place(); !status.ok()) return status;
    if (Status status = hear_root(); !status.ok()) return status;
    return std::move(met_);
  }

 private:
  Config& config() { return met_.config; }

  Status take_place() {
    auto host = mpi_.host_of(comm_, deadline_);
    if (!host.ok()) return host.status();
    HostWord word{.leader = comm_.rank, .name = {}};
    std::string own = host_name();
    Status status = write(word.name, own.empty() ? "localhost" : own, "the name of this host");
    if (!status.ok()) return status;
    if (status = mpi_.broadcast(*host, 0, &word, sizeof word, deadline_); !status.ok()) return status;
    mpi_.library()->comm_forget(host->handle);
    std::vector<Seat> seats(static_cast<size_t>(comm_.size));
    Seat mine{.leader = word.leader, .local_rank = host->rank};
    if (status = mpi_.allgather(comm_, &mine, sizeof mine, seats.data(), deadline_); !status.ok()) return status;
    config().hostname = word.name;
    config().rank = comm_.rank;
    config().size = comm_.size;
    config().local_rank = host->rank;
    config().local_size = host->size;
    // Hosts are numbered by their lowest ranks; hosts without this local rank do not count.
    auto is_across = [&](const Seat& seat) { return seat.local_rank == mine.local_rank; };
    config().cross_size = static_cast<int32_t>(std::count_if(seats.begin(), seats.end(), is_across));
    config().cross_rank = static_cast<int32_t>(std::count_if(
        seats.begin(), seats.end(), [&](const Seat& seat) { return is_across(seat) && seat.leader < mine.leader; }));
    return {};
  }

  Status hear_root() {
    auto word = std::make_unique<RootWord>();
    if (comm_.rank == 0) {
      if (Status status = prepare(*word); !status.ok()) {
        std::string_view text = status.message().substr(0, sizeof word->error - 1);
        (void)write(word->error, text, "the error");
      }
    }
    if (Status status = mpi_.broadcast(comm_, 0, word.get(), sizeof *word, deadline_); !status.ok()) return status;
    if (word->error[0] != 0) return {Code::invalid_argument, fmt::format("rank 0: {}", word->error)};
    config().secret_key = word->key;
    config().tls_identity = word->tls_identity;
    config().job = word->job;
    config().rendezvous_addr = word->addresses;
    config().rendezvous_port = word->port;
    met_.generation = Generation{word->generation};
    return {};
  }

  // On rank 0. A world of one host needs only a name; several hosts also need a key and a rendezvous.
  Status prepare(RootWord& word) {
    auto name = Key::random();
    if (!name.ok()) return name.status();
    if (config().secret_key.empty()) config().secret_key = name->hex();
    auto mark = Key::random();
    if (!mark.ok()) return mark.status();
    word.generation = static_cast<uint64_t>(met_.generation);
    word.port = -1;
    for (const Status& status : {write(word.job, "mpi/" + mark->hex().substr(0, 32), "the name of the job"),
                                 write(word.key, config().secret_key, "_HOROVOD_SECRET_KEY"),
                                 write(word.tls_identity, config().tls_identity, "_HOROVOD_TLS_IDENTITY")}) {
      if (!status.ok()) return status;
    }
    return config().local_size == config().size ? Status() : open_store(word);
  }

  Status open_store(RootWord& word) {
    auto credentials = credentials_from_config(config());
    if (!credentials.ok()) return credentials.status();
    auto listener = listen_on(config().network_interfaces);
    if (!listener.ok()) return listener.status();
    auto store = StoreServer::create(std::move(*listener), *credentials);
    if (!store.ok()) return store.status();
    met_.store = std::move(*store);
    word.port = met_.store->port();
    return write(word.addresses, addresses_of(*met_.store), "the list of addresses of rank 0");
  }

  MpiSession& mpi_;
  const MpiComm& comm_;
  TimePoint deadline_;
  MpiMeeting met_;
};

}  // namespace

Result<MpiMeeting> meet_by_mpi(MpiSession& mpi, const MpiComm& comm, Config config, Generation generation,
                               TimePoint deadline) {
  return Meeting(mpi, comm, std::move(config), generation, deadline).meet();
}

}  // namespace hvd
