// What negotiation costs each node as the world grows, as a star (every rank sends to the root) and as a tree.
//   bench_scale [file.json]   prints a table, and writes the figures for scale/plot.py
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "model/host_tree.h"
#include "scale/replay.h"
#include "scale/world.h"

namespace hvd {
namespace {

constexpr int32_t kRanksPerHost = 8;
constexpr size_t kTensors = 100;
constexpr int kBursts = 4;  // messages in which a rank submits them
constexpr int kCachedSteps = 8;

struct Case {
  int32_t ranks, fan_out;  // 0: a star
};

struct NodeTimes {
  StepTimes rank, leader, root;  // of the slowest leader
  StepTimes path;                // one after the other: a rank, the slowest leader of each level, the root
};

std::vector<Request> tensors() {
  std::vector<Request> requests(kTensors);
  for (size_t i = 0; i < kTensors; i++) {
    requests[i].name = fmt::format("allreduce.model.layers.{}.attention.weight", i);
    requests[i].shape = {1024, 1024};
  }
  return requests;
}

NodeTimes times_of(const ScaleWorld& world, int32_t ranks, const std::vector<Request>& requests) {
  NodeTimes times;
  times.rank = times.path = replay_rank(ranks, world.witnesses().front(), requests);
  for (const Witness& witness : world.witnesses()) {
    StepTimes node = replay(ranks, witness);
    times.path.first += node.first;
    times.path.cached += node.cached;
    if (witness.depth == 0) {
      times.root = node;
    } else {
      times.leader = {std::max(times.leader.first, node.first), std::max(times.leader.cached, node.cached)};
    }
  }
  return times;
}

// Per node and step.
std::string json_of(const Traffic& traffic, double nodes, double seconds) {
  auto per_node = [&](uint64_t count) { return static_cast<double>(count) / nodes; };
  return fmt::format(R"({{"messages_in": {}, "messages_out": {}, "bytes_in": {}, "bytes_out": {}, "cpu_us": {:.3f}}})",
                     per_node(traffic.messages_in), per_node(traffic.messages_out), per_node(traffic.bytes_in),
                     per_node(traffic.bytes_out), seconds * 1e6);
}

class Report {
 public:
  Report(Case test, const ScaleWorld& world, const NodeTimes& times) : test_(test), world_(world), times_(times) {}

  void print(const char* kind, const StepTraffic& step, double StepTimes::*time) const {
    double ranks = test_.ranks, leaders = std::max(world_.leaders(), 1);
    auto per = [](uint64_t count, double nodes) { return static_cast<double>(count) / nodes; };
    fmt::print(
        "{:>6} {:>4} {:>8} {:4} | {:6.0f} {:6.1f} | {:5.1f} {:6.0f} {:5.0f} {:6.1f} | {:6} {:9} {:9.1f} | {:9.1f}\n",
        test_.ranks, test_.fan_out == 0 ? "star" : fmt::format("x{}", test_.fan_out), kind, world_.hops(),
        per(step.rank.bytes_out, ranks), times_.rank.*time * 1e6, per(step.leader.messages_in, leaders),
        per(step.leader.bytes_in, leaders), per(step.leader.bytes_out, leaders), times_.leader.*time * 1e6,
        step.root.messages_in, step.root.bytes_in, times_.root.*time * 1e6, times_.path.*time * 1e6);
  }
  void print_memory() const {
    fmt::print("{:>18} memory | {:9.1f} KiB {:>9} {:15.1f} KiB | {:21.1f} KiB |\n", "", world_.rank_memory() / 1024,
               "|", world_.leader_memory() / 1024, world_.root_memory() / 1024);
    std::fflush(stdout);
  }
  std::string json(const StepTraffic& step, double StepTimes::*time) const {
    return fmt::format(R"({{"rank": {}, "leader": {}, "root": {}, "path_us": {:.3f}}})",
                       json_of(step.rank, test_.ranks, times_.rank.*time),
                       json_of(step.leader, std::max(world_.leaders(), 1), times_.leader.*time),
                       json_of(step.root, 1, times_.root.*time), times_.path.*time * 1e6);
  }
  std::string json_memory() const {
    return fmt::format(R"({{"rank": {:.0f}, "leader": {:.0f}, "root": {:.0f}}})", world_.rank_memory(),
                       world_.leader_memory(), world_.root_memory());
  }

 private:
  Case test_;
  const ScaleWorld& world_;
  const NodeTimes& times_;
};

std::string measure(const Case& test) {
  std::vector<Request> requests = tensors();
  ScaleWorld world(test.ranks, kRanksPerHost, test.fan_out);
  StepTraffic first = world.step(requests, kBursts), cached;
  for (int i = 0; i < kCachedSteps; i++) cached = world.step(requests, kBursts);
  NodeTimes times = times_of(world, test.ranks, requests);
  Report report(test, world, times);
  report.print("uncached", first, &StepTimes::first);
  report.print("cached", cached, &StepTimes::cached);
  report.print_memory();
  return fmt::format(
      R"({{"ranks": {}, "leaders": {}, "fan_out": {}, "hops": {}, "uncached": {}, "cached": {}, "memory": {}}})",
      test.ranks, world.leaders(), test.fan_out, world.hops(), report.json(first, &StepTimes::first),
      report.json(cached, &StepTimes::cached), report.json_memory());
}

}  // namespace
}  // namespace hvd

int main(int count, char** arguments) {
  using namespace hvd;
  fmt::print("{} tensors a step, {} messages a rank, {} ranks a host; per node and step, us of CPU time\n", kTensors,
             kBursts, kRanksPerHost);
  fmt::print("{:>6} {:>4} {:>8} {:4} | {:>6} {:>6} | {:>5} {:>6} {:>5} {:>6} | {:>6} {:>9} {:>9} | {:>9}\n", "ranks",
             "tree", "step", "hops", "rank B", "us", "leads", "B in", "B up", "us", "root", "B in", "us", "path us");
  std::vector<Case> cases;
  for (int32_t ranks : {8, 64, 256, 1024, 4096, 10000}) {
    cases.push_back({ranks, 0});
    cases.push_back({ranks, kHostFanOut});
  }
  for (int32_t fan_out : {2, 4, 8, 32, 64}) cases.push_back({10000, fan_out});
  std::string json;
  for (const Case& test : cases) json += (json.empty() ? "" : ",\n") + measure(test);
  if (count > 1) std::ofstream(arguments[1]) << "[" << json << "]\n";
}
