// Plans of process sets that span hosts, executed without an engine: every rank is handed the same plans.
#include "engine/executor.h"

#include <latch>

#include "support/ranks.h"

namespace hvd {
namespace {

Plan plan_of(Request request, int32_t result = -1) {
  return {.tensors = {std::make_shared<const Request>(std::move(request))}, .error_text = "", .result = result};
}

// One rank: its executor and its submitted operations.
struct Member {
  OperationTable operations;
  Recorder recorder;
  std::unique_ptr<ProcessSetTable> process_sets;
  std::unique_ptr<BackendList> backends;
  std::unique_ptr<Executor> executor;

  Member(Transport& transport, const World& world, const Config& config) {
    process_sets = std::move(*ProcessSetTable::create(world, config, transport));
    backends = std::move(*BackendList::create(world, config, transport, *process_sets));
    Executor::Parts parts{transport, operations, *process_sets, *backends, recorder};
    executor = std::make_unique<Executor>(parts, [](Task& task) { task.done = true; });
  }
  // Submits the operation and runs its plan.
  TaskRef run(Operation operation, int32_t result = -1) {
    TaskRef submission = make_task(0);
    Request request = operation.request;
    submission->operations.push_back(std::move(operation));
    EXPECT_TRUE(operations.add(submission).ok());
    std::vector<Task*> taken;
    operations.take_new(taken);
    EXPECT_TRUE(executor->run(plan_of(std::move(request), result)).ok());
    EXPECT_TRUE(submission->done && submission->status.ok()) << submission->status.message();
    operations.release(submission->handle);
    return submission;
  }
  float sum(float value, int32_t process_set) {
    Operation operation;
    operation.request = {.name = "sum", .process_set = process_set, .shape = {1}};
    operation.input = {.data = reinterpret_cast<std::byte*>(&value), .shape = {1}};
    operation.output = operation.input;
    run(std::move(operation));
    return value;
  }
};

Operation add_set(std::vector<int32_t> ranks) {
  Operation operation;
  operation.request = {.name = "add", .kind = Kind::add_process_set, .ranks = std::move(ranks)};
  return operation;
}

Operation remove_set(int32_t id) {
  Operation operation;
  operation.request = {.name = "remove", .kind = Kind::remove_process_set, .process_set = id};
  return operation;
}

TEST(ExecutorOverHosts, ProcessSetsOfAnyRanksReduceAndGather) {
  constexpr int32_t kHosts[] = {2, 1, 2};
  const std::vector<int32_t> host_of = {0, 0, 1, 2, 2};
  for (std::optional<bool> hierarchical : {std::optional<bool>(), std::optional<bool>(false)}) {
    Config config;
    config.hierarchical_allreduce = config.hierarchical_allgather = hierarchical;
    std::latch done(5);
    test::run_hosts(kHosts, test::small_settings(), [&](Transport& transport, int32_t rank) {
      World world{.rank = rank, .size = 5, .host_of = host_of};
      Member self(transport, world, config);
      float mine = static_cast<float>(rank);
      EXPECT_EQ(self.sum(mine, kWorldSet), 10.f);
      // Hosts without a member, with one, with all of theirs; a set that stays on one host.
      const std::vector<std::vector<int32_t>> sets = {{1, 3}, {0, 1, 4}, {2}, {3, 4}, {0, 2, 3, 4}};
      for (size_t i = 0; i < sets.size(); i++) self.run(add_set(sets[i]), static_cast<int32_t>(i) + 1);
      self.run(remove_set(1));
      self.run(add_set({0, 3}), 1);  // its memory is used again
      float expected[] = {3, 5, 2, 7, 9};
      for (size_t i = 0; i < sets.size(); i++) {
        int32_t id = static_cast<int32_t>(i) + 1;
        if (!self.process_sets->contains(id, rank)) continue;
        EXPECT_EQ(self.sum(mine, id), expected[i]) << "set " << id;
      }
      // Rows that only the other ranks know.
      Operation gather;
      std::vector<float> rows(static_cast<size_t>(rank), mine);
      gather.request = {.name = "gather", .kind = Kind::allgather, .shape = {rank}};
      gather.input = {.data = reinterpret_cast<std::byte*>(rows.data()), .shape = {rank}};
      TaskRef gathered = self.run(std::move(gather));
      const TensorView& output = gathered->operations[0].output;
      const float* all = reinterpret_cast<const float*>(output.data);
      EXPECT_EQ(std::vector<float>(all, all + output.shape[0]), (std::vector<float>{1, 2, 2, 3, 3, 3, 4, 4, 4, 4}));
      transport.waiter().leave();
      done.arrive_and_wait();
      transport.waiter().enter();
    });
  }
}

}  // namespace
}  // namespace hvd
