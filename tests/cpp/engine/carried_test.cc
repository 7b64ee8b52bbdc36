// Two engines whose small allreduces are carried: the same results as by a plan, to the bit, and the same errors.
#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "base/half.h"
#include "engine/engine.h"
#include "engine/temporary_directory.h"
#include "support/engines.h"

namespace hvd {
namespace {

using test::finish;
using test::Floats;
using test::run_engines;
using test::small_config;
using testing::HasSubstr;

Operation operation_on(Bytes& data, const std::string& name, DType dtype, ReduceOp op, double postscale = 1.0) {
  Operation operation;
  Shape shape{static_cast<int64_t>(data.size() / size_of(dtype))};
  operation.request = {
      .name = name, .reduce_op = op, .dtype = dtype, .prescale = 1.0, .postscale = postscale, .shape = shape};
  operation.input = {.data = data.data(), .dtype = dtype, .shape = shape};
  operation.output = operation.input;
  return operation;
}

// By a plan: members of a group are never carried.
Status finish_in_group(Engine& engine, Operation first, Operation second) {
  std::vector<Operation> operations;
  operations.push_back(std::move(first));
  operations.push_back(std::move(second));
  auto task = engine.submit(std::move(operations), nullptr, true);
  if (!task.ok()) return task.status();
  engine.wait(*task, kNever);
  engine.operations()->release((*task)->handle);
  return (*task)->status;
}

Bytes random_tensor(DType dtype, size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> numbers(-3.f, 3.f);
  Bytes data(elements * size_of(dtype));
  for (size_t i = 0; i < elements; i++) {
    float value = numbers(random);
    uint16_t half = dtype == DType::f16 ? float_to_half(value) : float_to_bfloat16(value);
    double wide = value;
    int32_t whole = static_cast<int32_t>(value * 1e8f);
    const void* from = dtype == DType::f32   ? static_cast<const void*>(&value)
                       : dtype == DType::f64 ? static_cast<const void*>(&wide)
                       : dtype == DType::i32 ? static_cast<const void*>(&whole)
                                             : static_cast<const void*>(&half);
    std::memcpy(data.data() + i * size_of(dtype), from, size_of(dtype));
  }
  return data;
}

bool may_carry(const Engine& engine, const Operation& operation) {
  return engine.carried() != nullptr && engine.carried()->may_carry(operation);
}

TEST(CarriedInEngines, GivesTheSameBitsAsAPlan) {
  run_engines(2, small_config(), [](Engine& engine) {
    unsigned seed = 0;
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32}) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::product}) {
        for (size_t elements : {1, 3, 17, 100}) {
          Bytes tensor = random_tensor(dtype, elements, 2 * ++seed + static_cast<unsigned>(engine.world().rank));
          Bytes planned = tensor, other(4);
          std::string name = "t" + std::to_string(seed);
          ASSERT_TRUE(finish_in_group(engine, operation_on(planned, name + ".planned", dtype, op, 0.3),
                                      operation_on(other, name + ".other", DType::f32, ReduceOp::sum))
                          .ok());
          for (int round = 0; round < 3; round++) {  // the first is not in the cache
            Bytes carried = tensor;
            Operation operation = operation_on(carried, name, dtype, op, 0.3);
            ASSERT_TRUE(may_carry(engine, operation));
            ASSERT_TRUE(finish(engine, std::move(operation)).ok());
            ASSERT_EQ(carried, planned) << name_of(op) << " of " << elements << " " << name_of(dtype);
          }
        }
      }
    }
  });
}

TEST(CarriedInEngines, AllocatesTheOutputWhereTheCallerHasNone) {
  run_engines(2, small_config(), [](Engine& engine) {
    for (int round = 0; round < 5; round++) {
      Floats tensor{{1.f, 2.f}};
      Operation operation = tensor.allreduce("a");
      operation.output.data = nullptr;
      TaskRef task;
      ASSERT_TRUE(finish(engine, std::move(operation), &task).ok());
      float result[2];
      std::memcpy(result, task->operations[0].output.data, sizeof result);
      EXPECT_EQ(result[0], 2.f);
      EXPECT_EQ(result[1], 4.f);
      EXPECT_EQ(tensor.data[1], 2.f) << "the input is left alone";
    }
  });
}

TEST(CarriedInEngines, WhatCannotBeReducedFailsAloneEachTime) {
  run_engines(2, small_config(), [](Engine& engine) {
    for (int round = 0; round < 4; round++) {
      Bytes tensor(8);
      Status status = finish(engine, operation_on(tensor, "bad", DType::i16, ReduceOp::average));
      EXPECT_THAT(std::string(status.message()), HasSubstr("bad"));
      Floats good{{1.f}};
      ASSERT_TRUE(finish(engine, good.allreduce("good")).ok());
      EXPECT_EQ(good.data[0], 2.f);
    }
  });
}

// One rank announces it alone and the other with something else in flight: they meet in a plan, or in carried data.
TEST(CarriedInEngines, MeetsThoseWhoHaveMoreInFlight) {
  run_engines(2, small_config(), [](Engine& engine) {
    for (int round = 0; round < 200; round++) {
      bool with_other = (round + engine.world().rank) % 2 == 0;
      Floats tensor{{static_cast<float>(round)}}, other{{1.f}};
      TaskRef early;
      if (with_other) {
        auto task = test::submit(engine, other.allreduce("other"));
        ASSERT_TRUE(task.ok());
        early = *task;
      }
      ASSERT_TRUE(finish(engine, tensor.allreduce("a")).ok());
      EXPECT_EQ(tensor.data[0], static_cast<float>(2 * round));
      if (!with_other) {
        ASSERT_TRUE(finish(engine, other.allreduce("other")).ok());
      } else {
        ASSERT_TRUE(engine.wait(early, kNever));
        engine.operations()->release(early->handle);
      }
      EXPECT_EQ(other.data[0], 2.f);
    }
  });
}

// What asks for the meaning of a plan, or could end one, does without.
TEST(CarriedInEngines, IsLeftOutWherePlansMatter) {
  Floats small{{1.f}}, large{std::vector<float>(1 << 20)};
  auto carries = [&](const Config& config, Operation operation, int32_t ranks = 2) {
    std::atomic<int> count{0};
    run_engines(ranks, config, [&](Engine& engine) { count += may_carry(engine, operation) ? 1 : 0; });
    return count.load() > 0;
  };
  EXPECT_TRUE(carries(small_config(), small.allreduce("a")));
  EXPECT_FALSE(carries(small_config(), small.allreduce("a"), 3));
  EXPECT_FALSE(carries(small_config(), large.allreduce("a")));
  EXPECT_FALSE(carries(small_config(), small.operation(Kind::broadcast, "a", {1})));
  Config config = small_config();
  config.collective_timeout = 60;
  EXPECT_FALSE(carries(config, small.allreduce("a")));
  config = small_config();
  config.cycle_time_ms = 1;
  EXPECT_FALSE(carries(config, small.allreduce("a")));
  config = small_config();
  config.autotune = true;
  EXPECT_FALSE(carries(config, small.allreduce("a")));
  TemporaryDirectory directory;
  config = small_config();
  config.timeline = directory.file("timeline.json");
  config.timeline_all_ranks = true;
  EXPECT_FALSE(carries(config, small.allreduce("a")));
}

}  // namespace
}  // namespace hvd
