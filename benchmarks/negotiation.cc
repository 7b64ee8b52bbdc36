// What a collective costs in negotiation once its name is cached: announce, receive, decide and receive again, for all
// ranks of a world on one core. Prints nanoseconds per operation and heap allocations per operation.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/clock.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"

namespace {

size_t allocations = 0;

}  // namespace

void* operator new(size_t size) {
  allocations++;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hvd {
namespace {

class World {
 public:
  explicit World(int32_t size) : root_(size, {}) {
    for (int32_t rank = 0; rank < size; rank++) ranks_.push_back(std::make_unique<Negotiator>(size));
  }

  // Every rank submits the requests; every rank reads the plans.
  void step(const std::vector<Request>& requests) {
    TimePoint now{};
    for (size_t rank = 0; rank < ranks_.size(); rank++) {
      for (const Request& request : requests) ranks_[rank]->announce(request);
      if (!root_.receive(Rank{static_cast<int32_t>(rank)}, ranks_[rank]->outgoing(), now).ok()) std::abort();
      ranks_[rank]->clear_outgoing();
    }
    message_.clear();
    if (!root_.decide(now, message_)) std::abort();
    for (auto& rank : ranks_) {
      decisions_.clear();
      if (!rank->receive(message_, decisions_).ok()) std::abort();
    }
  }

 private:
  Coordinator root_;
  std::vector<std::unique_ptr<Negotiator>> ranks_;
  Bytes message_;
  std::vector<Decision> decisions_;
};

void measure(int32_t size, size_t tensors) {
  std::vector<Request> requests(tensors);
  for (size_t i = 0; i < tensors; i++) {
    requests[i].name = fmt::format("allreduce.model.layers.{}.attention.weight", i);
    requests[i].shape = {1024, 1024};
  }
  World world(size);
  for (int i = 0; i < 1000; i++) world.step(requests);
  // Short rounds, so that the best of them was not interrupted.
  const int rounds = 400, steps = static_cast<int>(2000 / (tensors * static_cast<size_t>(size))) + 1;
  double best = 1e9;
  size_t before = allocations;
  for (int round = 0; round < rounds; round++) {
    TimePoint start = Clock::now();
    for (int i = 0; i < steps; i++) world.step(requests);
    best = std::min(best, seconds_of(Clock::now() - start) / steps);
  }
  double count = static_cast<double>(tensors) * size;
  fmt::print(
      "{:3} ranks {:4} tensors: {:8.0f} ns per step, {:5.0f} ns per tensor and rank, {:.2f} allocations per rank\n",
      size, tensors, best * 1e9, best * 1e9 / count,
      static_cast<double>(allocations - before) / (1.0 * rounds * steps * size));
}

}  // namespace
}  // namespace hvd

int main() {
  for (int32_t size : {1, 2, 8, 64}) hvd::measure(size, 1);
  for (int32_t size : {1, 8}) hvd::measure(size, 100);
}
