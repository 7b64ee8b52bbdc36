// What counting costs an operation: all calls that the engine makes for one small allreduce, alone in its plan, with a
// waiting thread, in nanoseconds. Prints the least and the median of many short rounds, so that other programs on the
// machine do not matter.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "observe/writer.h"

int main() {
  using namespace hvd;
  auto memory = observe::Memory::create();
  if (!memory.ok()) {
    fmt::print(stderr, "{}\n", memory.status().message());
    return 1;
  }
  observe::Writer writer(std::move(*memory));
  constexpr int kNames = 64, kOperations = 2000, kRounds = 500;
  std::vector<Operation> operations(kNames);
  for (int i = 0; i < kNames; i++) {
    Operation& operation = operations[static_cast<size_t>(i)];
    operation.request.name = "gradient/model.layers." + std::to_string(i) + ".attention.weight";
    operation.request.kind = Kind::allreduce;
    operation.request.dtype = operation.input.dtype = DType::f32;
    operation.input.shape = {256};
  }
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; round++) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kOperations; i++) {
      const Operation& operation = operations[static_cast<size_t>(i % kNames)];
      observe::Record record = writer.on_submit(operation, 1);
      observe::Wait wait(writer);
      writer.on_announce(true);
      writer.on_agreed(writer.on_plan(1), record, operation);
      writer.on_done(record, operation, true, writer.now());
    }
    std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    rounds.push_back(taken.count() / kOperations);
  }
  std::sort(rounds.begin(), rounds.end());
  fmt::print("{:.1f} ns per operation, median {:.1f} ns\n", rounds.front(), rounds[rounds.size() / 2]);
}
