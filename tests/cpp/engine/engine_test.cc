// Several engines in one process, driven by threads as user code would.
#include "engine/engine.h"

#include <gmock/gmock.h>

#include <latch>
#include <random>

#include "base/cores.h"
#include "support/engines.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::barrier;
using test::finish;
using test::Floats;
using test::run_engines;
using test::small_config;
using testing::HasSubstr;

float sum_of_ranks(int32_t ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

class Engines : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Engines, testing::Values(1, 2, 3, 5), testing::PrintToStringParamName());

TEST_P(Engines, NamesMatchInAnyOrder) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    constexpr int kNames = 40;
    std::vector<Floats> tensors(kNames);
    std::vector<TaskRef> submissions(kNames);
    std::vector<int> order(kNames);
    for (int round = 0; round < 5; round++) {
      for (int i = 0; i < kNames; i++) {
        order[static_cast<size_t>(i)] = i;
        tensors[static_cast<size_t>(i)].data.assign(static_cast<size_t>(i * 11 + 1),
                                                    static_cast<float>(engine.world().rank + 1));
      }
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(engine.world().rank + 10 * round)));
      for (int i : order) {
        auto submission = test::submit(engine, tensors[static_cast<size_t>(i)].allreduce("t" + std::to_string(i)));
        ASSERT_TRUE(submission.ok()) << submission.status().message();
        submissions[static_cast<size_t>(i)] = *submission;
      }
      for (int i = 0; i < kNames; i++) {
        ASSERT_TRUE(engine.wait(submissions[static_cast<size_t>(i)], kNever));
        EXPECT_TRUE(submissions[static_cast<size_t>(i)]->status.ok());
        for (float x : tensors[static_cast<size_t>(i)].data) ASSERT_EQ(x, sum_of_ranks(engine.world().size));
      }
    }
  });
}

TEST_P(Engines, OperationsFinishThoughNobodyWaits) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    Floats tensor{std::vector<float>(3000, 1.f)};
    std::mutex mutex;
    std::condition_variable finished;
    bool done = false;
    std::vector<Operation> operations;
    operations.push_back(tensor.allreduce("alone"));
    auto submission = engine.submit(
        std::move(operations),
        [&](const Task& it) {
          std::lock_guard lock(mutex);
          EXPECT_TRUE(it.status.ok());
          done = true;
          finished.notify_one();
        },
        false);
    ASSERT_TRUE(submission.ok());
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] { return done; });
    EXPECT_EQ(tensor.data[2999], static_cast<float>(engine.world().size));
    lock.unlock();
    EXPECT_TRUE(barrier(engine).ok());
  });
}

// Its threads, and those that they start, have one core: none is left for the engine threads.
class OneCore {
 public:
  OneCore() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(usable_cores().front()), &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

// A rank that computes leaves the engine thread asleep, but the other ranks need it although it never waits. The third
// round is no different from the first: what woke the engine thread wakes it again.
TEST_P(Engines, WhatIsDeferredIsDoneThoughItsRankNeverWaits) {
  OneCore one_core;
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    for (int round = 0; round < 3; round++) {
      Floats tensor{std::vector<float>(3000, 1.f)};
      std::latch done(1);
      std::vector<Operation> operations;
      operations.push_back(tensor.allreduce("deferred"));
      auto task = engine.submit(
          std::move(operations), [&](const Task&) { done.count_down(); }, true);
      ASSERT_TRUE(task.ok()) << task.status().message();
      engine.wake_for_new(true);
      if (engine.world().rank % 2 == 0) {
        done.wait();
      } else {
        EXPECT_TRUE(engine.wait(*task, kNever));
        done.wait();
      }
      EXPECT_EQ(tensor.data[2999], static_cast<float>(engine.world().size));
      engine.operations()->release((*task)->handle);
    }
    EXPECT_TRUE(barrier(engine).ok());
  });
}

TEST_P(Engines, ManyThreadsSubmitAndWaitAtOnce) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
      threads.emplace_back([&engine, t] {
        Floats tensor;
        for (int round = 0; round < 50; round++) {
          tensor.data.assign(static_cast<size_t>(1 + (round * 37 + t) % 700), 1.f);
          Status status = finish(engine, tensor.allreduce("thread" + std::to_string(t)));
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(tensor.data.back(), static_cast<float>(engine.world().size));
        }
      });
    }
  });
}

TEST(Engine, AWaitWithALimitComesBackAndTheOperationGoesOn) {
  std::atomic<bool> timed_out{false};
  run_engines(2, small_config(), [&](Engine& engine) {
    Floats tensor{{1.f}};
    if (engine.world().rank == 0) {
      auto submission = test::submit(engine, tensor.allreduce("slow"));
      ASSERT_TRUE(submission.ok());
      EXPECT_FALSE(engine.wait(*submission, Clock::now() + 10ms));
      timed_out = true;
      timed_out.notify_all();
      EXPECT_TRUE(engine.wait(*submission, kNever));
      EXPECT_EQ(tensor.data[0], 2.f);
    } else {
      timed_out.wait(false);
      EXPECT_TRUE(finish(engine, tensor.allreduce("slow")).ok());
    }
  });
}

TEST(Engine, ANameInFlightIsRefusedAndTheFirstStillFinishes) {
  std::atomic<bool> refused{false};
  run_engines(2, small_config(), [&](Engine& engine) {
    Floats tensor{{1.f}}, second{{5.f}};
    if (engine.world().rank == 0) {
      auto submission = test::submit(engine, tensor.allreduce("a"));
      ASSERT_TRUE(submission.ok());
      auto again = test::submit(engine, second.allreduce("a"));
      ASSERT_FALSE(again.ok());
      EXPECT_EQ(again.status().code(), Code::invalid_argument);
      EXPECT_THAT(std::string(again.status().message()), HasSubstr("a is already in flight"));
      refused = true;
      refused.notify_all();
      EXPECT_TRUE(engine.wait(*submission, kNever));
      EXPECT_TRUE((*submission)->status.ok());
    } else {
      refused.wait(false);
      EXPECT_TRUE(finish(engine, tensor.allreduce("a")).ok());
    }
    EXPECT_EQ(tensor.data[0], 2.f);
  });
}

TEST_P(Engines, AMismatchFailsThatTensorEverywhereAndNothingElse) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    if (engine.world().size == 1) return;
    Floats wrong{std::vector<float>(static_cast<size_t>(3 + engine.world().rank), 1.f)}, right{{1.f, 2.f}};
    for (int round = 0; round < 3; round++) {
      Status status = finish(engine, wrong.allreduce("wrong"));
      EXPECT_EQ(status.code(), Code::precondition);
      EXPECT_THAT(std::string(status.message()), HasSubstr("wrong"));
      right.data = {1.f, 2.f};
      ASSERT_TRUE(finish(engine, right.allreduce("right")).ok());
      EXPECT_EQ(right.data[1], 2.f * static_cast<float>(engine.world().size));
    }
  });
}

// One thread of rank 0 sleeps in a wait, driving; what another thread submits must be told to the others all the same,
// because only then the first wait can end.
TEST(EngineThreads, ASleepingDriverIsWokenForNewOperations) {
  Config config = small_config();
  config.yield_us = 0;  // sleep at once
  for (bool wait_follows : {false, true}) {
    run_engines(2, config, [&](Engine& engine) {
      for (int round = 0; round < 30; round++) {
        Floats late{{1.f}}, early{{1.f}};
        auto finish_in_time = [&](Floats& tensor, const char* name) {
          auto task = test::submit(engine, tensor.allreduce(name), wait_follows);
          ASSERT_TRUE(task.ok()) << task.status().message();
          ASSERT_TRUE(engine.wait(*task, Clock::now() + 20s)) << name << " was never announced";
          EXPECT_TRUE((*task)->status.ok()) << (*task)->status.message();
          engine.operations()->release((*task)->handle);
        };
        if (engine.world().rank == 1) {
          finish_in_time(early, "early");
          finish_in_time(late, "late");
          continue;
        }
        std::thread sleeper([&] { finish_in_time(late, "late"); });
        while (engine.operations()->in_flight() == 0) std::this_thread::yield();
        finish_in_time(early, "early");
        sleeper.join();
      }
    });
  }
}

TEST_P(Engines, AGroupSharesOneHandle) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    for (int round = 0; round < 3; round++) {
      std::vector<Floats> tensors(7);
      std::vector<Operation> operations;
      for (size_t i = 0; i < tensors.size(); i++) {
        tensors[i].data.assign(i * 100, 1.f);
        operations.push_back(tensors[i].allreduce("group_" + std::to_string(i + 1) + "of7"));
      }
      auto submission = engine.submit(std::move(operations), nullptr, true);
      ASSERT_TRUE(submission.ok());
      ASSERT_TRUE(engine.wait(*submission, kNever));
      ASSERT_TRUE((*submission)->status.ok()) << (*submission)->status.message();
      for (size_t i = 1; i < tensors.size(); i++)
        EXPECT_EQ(tensors[i].data.back(), static_cast<float>(engine.world().size));
    }
  });
}

TEST_P(Engines, GathersLearnTheOthersRows) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    int32_t rank = engine.world().rank, size = engine.world().size;
    for (int round = 0; round < 4; round++) {
      int64_t rows = rank * round;
      Floats tensor{std::vector<float>(static_cast<size_t>(rows) * 3, static_cast<float>(rank))};
      Operation operation = tensor.operation(Kind::allgather, "gather", {rows, 3});
      operation.output.data = nullptr;
      TaskRef done;
      ASSERT_TRUE(finish(engine, std::move(operation), &done).ok());
      const Operation& result = done->operations[0];
      int64_t total = 0;
      for (int32_t p = 0; p < size; p++) {
        EXPECT_EQ(result.received_rows[static_cast<size_t>(p)], p * round);
        for (int64_t i = 0; i < p * round * 3; i++) {
          float x = 0;
          std::memcpy(&x, result.output.data + (total * 3 + i) * 4, sizeof x);
          ASSERT_EQ(x, static_cast<float>(p));
        }
        total += p * round;
      }
      EXPECT_EQ(result.output.shape, (Shape{total, 3}));
    }
  });
}

TEST_P(Engines, AJoinedRankContributesZeros) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    int32_t rank = engine.world().rank, size = engine.world().size;
    for (int round = 0; round < 2; round++) {
      for (int step = 0; step <= rank; step++) {  // rank r makes r + 1 steps
        Floats tensor{std::vector<float>(600, 1.f)};
        ASSERT_TRUE(finish(engine, tensor.allreduce("step")).ok());
        EXPECT_EQ(tensor.data[599], static_cast<float>(size - step));
      }
      Operation join;
      join.request = {.name = "join.noname", .kind = Kind::join};
      TaskRef done;
      ASSERT_TRUE(finish(engine, std::move(join), &done).ok());
      EXPECT_EQ(done->operations[0].result, size - 1);
    }
  });
}

TEST_P(Engines, ProcessSetsComeAndGo) {
  run_engines(GetParam(), small_config(), [](Engine& engine) {
    int32_t rank = engine.world().rank, size = engine.world().size;
    if (size < 3) return;
    for (int round = 0; round < 3; round++) {
      Operation add;
      add.request = {.name = "process_set.add", .kind = Kind::add_process_set, .ranks = {0, 2}};
      TaskRef done;
      ASSERT_TRUE(finish(engine, std::move(add), &done).ok()) << done->status.message();
      int32_t id = done->operations[0].result;
      EXPECT_EQ(id, 1);
      Floats tensor{std::vector<float>(900, 1.f)};
      Operation operation = tensor.allreduce("in set");
      operation.request.process_set = id;
      Status status = finish(engine, std::move(operation));
      if (rank == 0 || rank == 2) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(tensor.data[899], 2.f);
      } else {
        EXPECT_EQ(status.code(), Code::invalid_argument);
      }
      Operation remove;
      remove.request = {.name = "process_set.remove", .kind = Kind::remove_process_set, .process_set = id};
      ASSERT_TRUE(finish(engine, std::move(remove)).ok());
      EXPECT_FALSE(engine.process_sets().members(id).has_value());
    }
  });
}

TEST(Engine, ShutdownOfOneRankFailsWhatIsPendingOnTheOthers) {
  run_engines(3, small_config(), [](Engine& engine) {
    if (engine.world().rank == 1) return;  // its engine is destroyed
    Floats tensor{{1.f}};
    Status status = finish(engine, tensor.allreduce("never"));
    EXPECT_EQ(status.code(), Code::unknown);
    EXPECT_THAT(std::string(status.message()), HasSubstr("shut down by rank 1"));
    Status later = finish(engine, tensor.allreduce("later"));
    EXPECT_EQ(later.code(), Code::unknown);
  });
}

TEST(Engine, ACollectiveTimeoutNamesWhoIsMissing) {
  Config config = small_config();
  config.collective_timeout = 5;  // in which all come to the barrier below
  std::atomic<int> failed{0};
  run_engines(3, config, [&](Engine& engine) {
    Floats tensor{{1.f}};
    if (engine.world().rank == 2) {
      for (int count = failed; count < 2; count = failed) failed.wait(count);
    } else {
      Status status = finish(engine, tensor.allreduce("lonely"));
      EXPECT_EQ(status.code(), Code::unknown);
      EXPECT_THAT(std::string(status.message()), HasSubstr("lonely"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
      failed++;
      failed.notify_all();
    }
    EXPECT_TRUE(barrier(engine).ok()) << "the world goes on";
    if (engine.world().rank == 2) {
      EXPECT_FALSE(finish(engine, tensor.allreduce("lonely")).ok()) << "it gets the same error";
    }
  });
}

TEST(Engine, ChecksArgumentsBeforeAnythingIsSent) {
  run_engines(2, small_config(), [](Engine& engine) {
    Floats tensor{std::vector<float>(5, 1.f)};
    auto code_of = [&](Operation operation) { return finish(engine, std::move(operation)).code(); };
    Operation unknown_set = tensor.allreduce("a");
    unknown_set.request.process_set = 9;
    EXPECT_EQ(code_of(std::move(unknown_set)), Code::invalid_argument);
    Operation bad_root = tensor.operation(Kind::broadcast, "b", {5});
    bad_root.request.root_rank = 2;
    EXPECT_EQ(code_of(std::move(bad_root)), Code::invalid_argument);
    EXPECT_EQ(code_of(tensor.operation(Kind::alltoall, "c", {5})), Code::invalid_argument) << "5 rows over 2 ranks";
    for (std::vector<int64_t> splits : {std::vector<int64_t>{1}, {3, 3}, {-1, 2}}) {
      Operation operation = tensor.operation(Kind::alltoall, "d", {5});
      operation.sent_rows = splits;
      EXPECT_EQ(code_of(std::move(operation)), Code::invalid_argument);
    }
    EXPECT_EQ(code_of(tensor.operation(Kind::reducescatter, "e", {})), Code::invalid_argument) << "scalar";
    EXPECT_TRUE(barrier(engine).ok());
  });
}

TEST(Engine, TuningChangesSpeedOnlyNeverResults) {
  Config config = small_config();
  config.one_shot_limit.reset();
  config.autotune = true;
  config.autotune_warmup_samples = 1;
  config.autotune_steps_per_sample = 2;
  config.autotune_bayes_opt_max_samples = 5;
  run_engines(2, config, [](Engine& engine) {
    for (int step = 0; step < 60; step++) {
      for (int i = 0; i < 3; i++) {
        Floats tensor{std::vector<float>(static_cast<size_t>(1 + i * 1500), 1.f)};
        ASSERT_TRUE(finish(engine, tensor.allreduce("w" + std::to_string(i))).ok());
        ASSERT_EQ(tensor.data.back(), 2.f);
      }
    }
  });
}

}  // namespace
}  // namespace hvd
