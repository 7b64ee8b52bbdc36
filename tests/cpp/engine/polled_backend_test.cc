// A backend whose plans get on only while they are polled, as MPI's: the engine polls whoever waits, or nobody does,
// goes on agreeing meanwhile, and sees to it that nothing is left behind.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "support/engines.h"

namespace hvd {
namespace {

using test::finish;
using test::Floats;

constexpr int kPolls = 50;

// Sums float32 by exchange(), and keeps the result back until it was polled often enough and may go.
class SlowBackend : public PolledBackend {
 public:
  struct Control {
    std::atomic<bool> held{false};  // nothing is done as long as it is
    std::atomic<bool> broken{false};
  };

  SlowBackend(BackendContext context, Transport& transport, Control& control)
      : context_(std::move(context)), transport_(transport), control_(control) {}

  std::string_view name() const override { return "slow"; }
  std::string_view activity(Kind) const override { return "SLOW"; }
  bool accepts(const Plan& plan) const override { return plan.first().kind == Kind::allreduce; }
  void run(const Plan& plan, std::span<Operation* const> operations, Done done) override {
    Status status;
    for (Operation* operation : operations) {
      size_t count = operation->input.bytes() / sizeof(float),
             ranks = context_.members(plan.first().process_set).size();
      std::vector<float> all(count * ranks);
      status = context_.exchange(plan.first().process_set, {operation->input.data, operation->input.bytes()},
                                 reinterpret_cast<std::byte*>(all.data()));
      auto* out = reinterpret_cast<float*>(operation->output.data);
      for (size_t i = 0; i < count; i++) out[i] = 0;
      for (size_t i = 0; i < all.size(); i++) out[i % count] += all[i];
    }
    if (!status.ok()) return done(status);
    jobs_.push_back(std::move(done));
    polls_ = 0;
  }
  bool is_busy() const override { return !jobs_.empty(); }
  bool poll() override {
    if (control_.broken.load()) {
      transport_.abort({Code::unknown, "the slow network is broken"});
      give_up({Code::unknown, "the slow network is broken"});
      return true;
    }
    if (++polls_ < kPolls || control_.held.load()) return false;
    for (Done& done : std::exchange(jobs_, {})) done({});
    return true;
  }
  void give_up(const Status& status) override {
    for (Done& done : std::exchange(jobs_, {})) done(status);
  }

 private:
  BackendContext context_;
  Transport& transport_;
  Control& control_;
  std::vector<Done> jobs_;
  int polls_ = 0;
};

void run_slow_engines(int32_t ranks, SlowBackend::Control& control, const std::function<void(Engine&)>& body) {
  test::run_groups(ranks, test::Where::threads, [&](HostGroup group) {
    World world{.rank = group.rank, .size = ranks, .local_rank = group.rank, .local_size = ranks};
    auto engine = Engine::create(
        world, test::small_config(), WorldGroup{.host = std::move(group)},
        [&](const BackendContext& context, Transport& transport) {
          return Result<std::unique_ptr<PolledBackend>>(std::make_unique<SlowBackend>(context, transport, control));
        });
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    body(**engine);
  });
}

TEST(PolledBackend, IsPolledByWhoeverWaits) {
  SlowBackend::Control control;
  run_slow_engines(3, control, [](Engine& engine) {
    for (int round = 0; round < 100; round++) {
      Floats tensor{std::vector<float>(100, 1.f)};
      ASSERT_TRUE(finish(engine, tensor.allreduce("x")).ok());
      ASSERT_EQ(tensor.data[99], 3.f);
    }
  });
}

TEST(PolledBackend, IsPolledWhenNobodyWaits) {
  SlowBackend::Control control;
  run_slow_engines(2, control, [](Engine& engine) {
    for (int round = 0; round < 20; round++) {
      Floats tensor{std::vector<float>(100, 1.f)};
      auto task = test::submit(engine, tensor.allreduce("x"));
      ASSERT_TRUE(task.ok());
      TimePoint limit = Clock::now() + seconds(30);
      while (!(*task)->done.load() && Clock::now() < limit) std::this_thread::yield();
      ASSERT_TRUE((*task)->done.load());
      ASSERT_EQ(tensor.data[0], 2.f);
    }
  });
}

TEST(PolledBackend, TheRanksGoOnAgreeingMeanwhile) {
  SlowBackend::Control control;
  control.held = true;
  run_slow_engines(3, control, [&](Engine& engine) {
    Floats tensor{std::vector<float>(100, 1.f)};
    auto task = test::submit(engine, tensor.allreduce("slow"));
    ASSERT_TRUE(task.ok());
    for (int round = 0; round < 10; round++) ASSERT_TRUE(test::barrier(engine).ok());
    EXPECT_FALSE((*task)->done.load());
    EXPECT_TRUE(test::barrier(engine).ok());  // all ranks have polled
    control.held = false;
    EXPECT_TRUE(engine.wait(*task, kNever));
    EXPECT_EQ(tensor.data[0], 3.f);
  });
}

TEST(PolledBackend, WhatIsUnderWayAtTheEndIsFinished) {
  SlowBackend::Control control;
  run_slow_engines(2, control, [&](Engine& engine) {
    Floats tensor{std::vector<float>(100, 1.f)};
    auto task = test::submit(engine, tensor.allreduce("last"));
    ASSERT_TRUE(task.ok());
    ASSERT_TRUE(test::barrier(engine).ok());  // agreed on before it
    engine.shutdown();
    EXPECT_TRUE((*task)->done.load());
    EXPECT_TRUE((*task)->status.ok()) << (*task)->status.message();
    EXPECT_EQ(tensor.data[0], 2.f);
  });
}

TEST(PolledBackend, AFailureEndsWhatIsUnderWayOnAllRanks) {
  SlowBackend::Control control;
  control.held = true;
  run_slow_engines(3, control, [&](Engine& engine) {
    Floats tensor{std::vector<float>(100, 1.f)};
    auto task = test::submit(engine, tensor.allreduce("x"));
    ASSERT_TRUE(task.ok());
    (void)test::barrier(engine);  // already agreed; on late ranks it is already broken
    control.broken = true;
    EXPECT_TRUE(engine.wait(*task, Clock::now() + seconds(30)));
    EXPECT_EQ((*task)->status.code(), Code::unknown);
    EXPECT_THAT(std::string((*task)->status.message()), testing::HasSubstr("the slow network is broken"));
  });
}

}  // namespace
}  // namespace hvd
