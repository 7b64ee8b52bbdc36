// What one thread submits while another one removes its process set, or joins. Such an operation alone may fail; the
// world goes on.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "engine/engine.h"
#include "support/engines.h"

namespace hvd {
namespace {

using test::finish;
using test::Floats;
using test::run_engines;
using test::small_config;

constexpr int kChanges = 100;

// The sets {0, 1} and {0, 2} in turn, each with the id of the one before. `version` is even while one is there.
void change_sets(Engine& engine, std::atomic<int>& version) {
  for (int change = 0; change < kChanges; change++) {
    Operation add;
    add.request = {.name = "process_set.add", .kind = Kind::add_process_set, .ranks = {0, 1 + change % 2}};
    TaskRef done;
    ASSERT_TRUE(finish(engine, std::move(add), &done).ok()) << done->status.message();
    ASSERT_EQ(done->operations[0].result, 1);
    version = 2 * change + 2;
    Operation remove;
    remove.request = {.name = "process_set.remove", .kind = Kind::remove_process_set, .process_set = 1};
    version = 2 * change + 3;
    Status status = finish(engine, std::move(remove));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  version = -1;
}

// The other member of the set, if it was there and the same before and after.
std::optional<int> partner_of(int before, int after) {
  if (before != after || before <= 0 || before % 2 != 0) return std::nullopt;
  return 1 + (before / 2 - 1) % 2;
}

// While sets change, a slow machine may reduce nothing; on a set that stays, it must.
void reduce_on_a_new_set(Engine& engine, float mine) {
  Operation add;
  add.request = {.name = "process_set.add", .kind = Kind::add_process_set, .ranks = {0, 1}};
  ASSERT_TRUE(finish(engine, std::move(add)).ok());
  if (engine.world().rank <= 1) {
    Floats tensor{{mine}};
    Operation operation = tensor.allreduce("on the last set");
    operation.request.process_set = 1;
    Status status = finish(engine, std::move(operation));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(tensor.data[0], 3.0F);
  }
  EXPECT_TRUE(test::barrier(engine).ok());  // no rank leaves before
}

TEST(Crossing, OnlyTheOperationFailsWhoseProcessSetIsRemoved) {
  run_engines(3, small_config(), [&](Engine& engine) {
    std::atomic<int> version{0};
    std::jthread changing([&] { change_sets(engine, version); });
    auto mine = static_cast<float>(1 << engine.world().rank);
    while (version != -1) {
      Floats tensor{{mine}};
      Operation operation = tensor.allreduce("sum");
      operation.request.process_set = 1;
      int before = version;
      auto task = test::submit(engine, std::move(operation), true);
      auto partner = partner_of(before, version);
      if (!task.ok()) {
        ASSERT_EQ(task.status().code(), Code::invalid_argument) << task.status().message();
        continue;
      }
      ASSERT_TRUE(engine.wait(*task, kNever));
      engine.operations()->release((*task)->handle);
      const Status& status = (*task)->status;
      if (status.ok()) {
        if (partner) {
          ASSERT_EQ(tensor.data[0], static_cast<float>(1 + (1 << *partner)));
        }
      } else {
        ASSERT_EQ(status.code(), Code::precondition) << status.message();
        ASSERT_EQ(status.message(), "process set 1 was removed");
      }
    }
    changing.join();
    EXPECT_TRUE(test::barrier(engine).ok()) << "the world goes on";
    reduce_on_a_new_set(engine, mine);
  });
}

TEST(Crossing, OnlyTheOperationFailsThatComesAfterTheJoinOfItsRank) {
  run_engines(2, small_config(), [&](Engine& engine) {
    auto join = [&] {
      Operation operation;
      operation.request = {.name = "join", .kind = Kind::join};
      Status status = finish(engine, std::move(operation));
      EXPECT_TRUE(status.ok()) << status.message();
    };
    std::atomic<bool> over{false};
    std::jthread joining([&] {
      for (int i = 0; i < kChanges; i++) join();
      over = true;
    });
    // A joined rank takes part in the allreduces of the others, so each of these comes to an end.
    while (!over) {
      Floats tensor{{1.f}};
      Status status = finish(engine, tensor.allreduce("sum"));
      if (!status.ok()) {
        ASSERT_THAT(std::string(status.message()), testing::HasSubstr("this rank has joined"));
      }
    }
    joining.join();
    join();  // ends the last sum of the other rank
    EXPECT_TRUE(test::barrier(engine).ok()) << "the world goes on";
  });
}

}  // namespace
}  // namespace hvd
