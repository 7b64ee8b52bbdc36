#include "sampler.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace bench {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter",
                                                    "barrier",   "burst",     "async",     "idle"};

// Ordinary private pages, like a framework's tensors, all of them present.
float* allocate(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot allocate " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

// What rank r holds at place i, and the sum of it over all ranks: small integers, exact in any order.
float value_of(int rank, size_t i) { return static_cast<float>(rank + 1) + static_cast<float>(i % 7); }
float sum_of(int ranks, size_t i) {
  return static_cast<float>(ranks * (ranks + 1)) / 2 + static_cast<float>(ranks) * static_cast<float>(i % 7);
}

}  // namespace

std::string_view name_of(Collective collective) { return kNames[static_cast<size_t>(collective)]; }

std::vector<Case> parse_cases(int argc, char** argv, int first) {
  std::vector<Case> cases;
  errno = 0;
  for (int i = first; i < argc; i++) {
    std::string argument = argv[i];
    size_t colon = argument.find(':');
    auto name = std::find(kNames.begin(), kNames.end(), argument.substr(0, colon));
    if (colon == std::string::npos || name == kNames.end()) fail("not a case: " + argument);
    std::stringstream sizes(argument.substr(colon + 1));
    for (std::string bytes; std::getline(sizes, bytes, ',');) {
      cases.push_back({static_cast<Collective>(name - kNames.begin()), std::stoull(bytes)});
    }
  }
  return cases;
}

Sampler::Sampler(Team& team, int argc, char** argv) : team_(team) {
  errno = 0;
  if (argc < 5) fail("usage: <program> <ranks> <samples> <milliseconds> <collective:bytes,bytes...> ...");
  samples_ = std::atoi(argv[2]);
  sample_seconds_ = std::atof(argv[3]) * 1e-3;
  cases_ = parse_cases(argc, argv, 4);
  size_t largest = 4096;
  for (const Case& c : cases_) largest = std::max(largest, c.bytes);
  in_ = allocate(largest);
  out_ = allocate(largest);
}

void Sampler::fill(const Case& c, bool zero) {
  for (size_t i = 0; i < c.count(); i++) in_[i] = zero ? 0.0f : value_of(team_.rank(), i);
  std::memset(out_, 0, c.bytes);
}

bool Sampler::is_right(const Case& c, const float* result) const {
  int ranks = team_.size();
  size_t share = share_of(c), mine = static_cast<size_t>(team_.rank()) * share;
  auto all = [&](size_t count, auto&& expected) {
    for (size_t i = 0; i < count; i++) {
      if (result[i] != expected(i)) return false;
    }
    return true;
  };
  auto sender = [&](size_t i) { return static_cast<int>(i / share); };
  switch (c.collective) {
    case Collective::allreduce:
    case Collective::burst:
    case Collective::async: return all(c.count(), [&](size_t i) { return sum_of(ranks, i); });
    case Collective::broadcast: return all(c.count(), [&](size_t i) { return value_of(0, i); });
    case Collective::allgather: return all(c.count(), [&](size_t i) { return value_of(sender(i), i % share); });
    case Collective::alltoall: return all(c.count(), [&](size_t i) { return value_of(sender(i), mine + i % share); });
    case Collective::reducescatter: return all(share, [&](size_t i) { return sum_of(ranks, mine + i); });
    case Collective::barrier:
    case Collective::idle: return true;
  }
  return false;
}

void Sampler::print(const Case& c, double us, double probe_before, double probe_after, bool wrong) const {
  if (team_.rank() != 0) return;
  std::printf("%s\t%zu\t%d\t%.4f\t%.0f\t%.0f%s\n", name_of(c.collective).data(), c.bytes, team_.size(), us,
              probe_before, probe_after, wrong ? "\tWRONG" : "");
  std::fflush(stdout);
}

}  // namespace bench
