// What does the hierarchy gain between hosts? Processes of this machine play the ranks of several hosts: shared memory
// inside a pretended host, a socket between every two ranks of different ones. Each size is reduced by turns in both
// ways, so that a machine that changes its speed changes both.
//     bench_hosts [ranks per host, by commas] [samples] [milliseconds per sample] [KiB per round]
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/world_collectives.h"
#include "model/config.h"
#include "team.h"
#include "transport/local.h"

namespace {

template <class T>
T take(hvd::Result<T> result) {
  errno = 0;
  if (!result.ok()) bench::fail(std::string(result.status().message()));
  return std::move(*result);
}

void expect(const hvd::Status& status) {
  errno = 0;
  if (!status.ok()) bench::fail(std::string(status.message()));
}

// A file that Team shares its numbers through, for this run only.
struct Block {
  std::string path = "/tmp/bench_hosts.XXXXXX";
  Block() {
    int fd = ::mkstemp(path.data());
    if (fd < 0) bench::fail("cannot make " + path);
    ::close(fd);
    ::setenv("BENCH_BLOCK", path.c_str(), 1);
  }
  ~Block() { ::unlink(path.c_str()); }
};

// One rank with its streams and the collectives of the world, both ways.
class Rank {
 public:
  Rank(hvd::LocalRank mine, const std::vector<int32_t>& host_of, bool crowded, size_t round) {
    hvd::TransportSettings settings;
    settings.crowded = crowded;
    if (crowded) settings.spin = {};
    transport_ = take(hvd::Transport::create(std::move(mine.group), settings));
    auto mesh = take(hvd::Mesh::create([](int32_t, const hvd::Status& status) { expect(status); }));
    for (auto& [peer, stream] : mine.streams) mesh->add(peer, std::move(stream));
    expect(transport_->attach(std::move(mesh)));
    transport_->waiter().enter();
    std::vector<int32_t> world(host_of.size()), locals(static_cast<size_t>(transport_->size()));
    std::iota(world.begin(), world.end(), 0);
    std::iota(locals.begin(), locals.end(), 0);
    hvd::Placement placement = hvd::place(world, host_of, transport_->world_rank(transport_->rank()));
    for (bool flat : {false, true}) {
      hvd::Channel* channel = take(transport_->channels().open(flat ? 1 : 0, locals));
      hvd::WorldSettings chosen{.round = round, .flat_allreduce = flat};
      (flat ? flat_ : hierarchy_) = std::make_unique<hvd::WorldCollectives>(*transport_, *channel, placement, chosen);
    }
  }

  // Seconds per allreduce of the slowest rank.
  double time(bench::Team& team, bool flat, hvd::Segments& data, long repeats) {
    team.barrier();
    double start = bench::now();
    for (long i = 0; i < repeats; i++) expect((flat ? flat_ : hierarchy_)->allreduce(data, data, {}));
    double seconds = bench::now() - start;
    transport_->waiter().leave();  // a peer that sleeps is rung for
    transport_->waiter().enter();
    return team.largest(seconds / static_cast<double>(repeats));
  }

 private:
  std::unique_ptr<hvd::Transport> transport_;
  std::unique_ptr<hvd::WorldCollectives> hierarchy_, flat_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void compare(bench::Team& team, Rank& rank, size_t bytes, int samples, double seconds) {
  std::vector<float> tensor(bytes / sizeof(float), 1.f);
  hvd::Segments data(reinterpret_cast<std::byte*>(tensor.data()), bytes);
  for (bool flat : {false, true}) {
    std::fill(tensor.begin(), tensor.end(), 1.f);
    rank.time(team, flat, data, 1);
    float expected = static_cast<float>(team.size());
    if (std::any_of(tensor.begin(), tensor.end(), [&](float x) { return x != expected; })) bench::fail("a wrong sum");
  }
  std::fill(tensor.begin(), tensor.end(), 0.f);
  std::vector<double> times[2], factors;
  for (int sample = 0; sample < samples; sample++) {
    for (bool flat : {false, true}) {
      double once = rank.time(team, flat, data, 1);
      long repeats = std::clamp(static_cast<long>(seconds / once), 1L, 100'000L);
      times[flat].push_back(rank.time(team, flat, data, repeats));
    }
    factors.push_back(times[1].back() / times[0].back());
  }
  if (team.rank() != 0) return;
  std::printf("%10zu %12.1f %12.1f %8.2f   (%.2f .. %.2f)\n", bytes, median(times[0]) * 1e6, median(times[1]) * 1e6,
              median(factors), *std::min_element(factors.begin(), factors.end()),
              *std::max_element(factors.begin(), factors.end()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int32_t> ranks_per_host, host_of;
  std::stringstream list(argc > 1 ? argv[1] : "2,2");
  for (std::string ranks; std::getline(list, ranks, ',');) ranks_per_host.push_back(std::stoi(ranks));
  for (size_t host = 0; host < ranks_per_host.size(); host++) {
    host_of.insert(host_of.end(), static_cast<size_t>(ranks_per_host[host]), static_cast<int32_t>(host));
  }
  int samples = argc > 2 ? std::atoi(argv[2]) : 9;
  double seconds = (argc > 3 ? std::atof(argv[3]) : 30) / 1000;
  size_t round = argc > 4 ? static_cast<size_t>(std::atoi(argv[4])) << 10 : hvd::WorldSettings{}.round;
  std::vector<hvd::LocalRank> ranks = take(hvd::make_local_hosts(ranks_per_host));
  Block block;
  int size = static_cast<int>(host_of.size());
  std::printf("%10s %12s %12s %8s\n", "bytes", "hierarchy us", "flat us", "factor");
  std::fflush(stdout);
  return bench::fork_ranks(size, [&](int number) {
    bench::Team team(number, size);
    hvd::LocalRank mine = std::move(ranks[static_cast<size_t>(number)]);
    ranks.clear();
    Rank rank(std::move(mine), host_of, team.crowded(), round);
    for (size_t bytes = 4; bytes <= 64 << 20; bytes *= 4) compare(team, rank, bytes, samples, seconds);
    team.barrier();
  });
}
