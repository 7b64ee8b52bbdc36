// Runs several engines in this process, one rank per thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support/ranks.h"

namespace hvd::test {

inline Config small_config() {
  Config config;
  config.shm_ring_bytes = 16 << 10;
  config.shm_chunk_bytes = 1 << 10;
  config.shm_chunks = 4;
  config.one_shot_limit = 512;
  config.spin_us = 0;
  config.dynamic_process_sets = true;
  return config;
}

inline void run_engines(int32_t ranks, const Config& config, const std::function<void(Engine&)>& body) {
  run_groups(ranks, Where::threads, [&](HostGroup group) {
    World world{.rank = group.rank, .size = ranks, .local_rank = group.rank, .local_size = ranks};
    auto engine = Engine::create(world, config, WorldGroup{.host = std::move(group)});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    body(**engine);
  });
}

// One float tensor and its operation.
struct Floats {
  std::vector<float> data;
  Operation operation(Kind kind, std::string name, Shape shape) {
    Operation operation;
    operation.request = {.name = std::move(name), .kind = kind, .reduce_op = ReduceOp::sum, .shape = shape};
    operation.input = {.data = reinterpret_cast<std::byte*>(data.data()), .shape = std::move(shape)};
    operation.output = operation.input;
    return operation;
  }
  Operation allreduce(std::string name) {
    return operation(Kind::allreduce, std::move(name), {static_cast<int64_t>(data.size())});
  }
};

inline Result<TaskRef> submit(Engine& engine, Operation operation, bool wait_follows = false) {
  std::vector<Operation> operations;
  operations.push_back(std::move(operation));
  return engine.submit(std::move(operations), nullptr, wait_follows);
}

// Submits and waits; the outcome.
inline Status finish(Engine& engine, Operation operation, TaskRef* out = nullptr) {
  auto submission = submit(engine, std::move(operation), true);
  if (!submission.ok()) return submission.status();
  EXPECT_TRUE(engine.wait(*submission, kNever));
  engine.operations()->release((*submission)->handle);
  if (out != nullptr) *out = *submission;
  return (*submission)->status;
}

inline Status barrier(Engine& engine, int32_t process_set = kWorldSet) {
  Operation operation;
  operation.request = {.name = "barrier.noname", .kind = Kind::barrier, .process_set = process_set};
  return finish(engine, std::move(operation));
}

}  // namespace hvd::test
