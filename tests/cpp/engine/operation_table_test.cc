#include "engine/operation_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "engine/turn.h"

namespace hvd {
namespace {

TaskRef task_named(std::vector<std::string> names, int32_t process_set = kWorldSet) {
  TaskRef task = make_task(names.size());
  for (size_t i = 0; i < names.size(); i++) {
    task->operations[i].request.name = std::move(names[i]);
    task->operations[i].request.process_set = process_set;
  }
  return task;
}

Plan plan_of(const std::vector<std::string>& names, int32_t process_set = kWorldSet) {
  Plan plan;
  for (const std::string& name : names) {
    plan.tensors.push_back(std::make_shared<const Request>(Request{.name = name, .process_set = process_set}));
  }
  return plan;
}

std::vector<Task*> take(OperationTable& table) {
  std::vector<Task*> taken;
  table.take_new(taken);
  return taken;
}

// What a driver does: returns the tasks that are done by the plan.
std::vector<TaskRef> finish(OperationTable& table, const Plan& plan, const Status& status = {}) {
  take(table);
  std::vector<Task::Place*> found;
  table.find(plan, found);
  std::erase(found, nullptr);
  std::vector<TaskRef> done;
  table.finish(found, status, done);
  return done;
}

TEST(OperationTable, ANameIsInFlightOncePerProcessSet) {
  OperationTable table;
  EXPECT_TRUE(table.add(task_named({"a"})).ok());
  EXPECT_TRUE(table.add(task_named({"a"}, 1)).ok());
  EXPECT_EQ(table.add(task_named({"a"})).code(), Code::invalid_argument);
  EXPECT_EQ(table.add(task_named({"b", "c", "b"})).code(), Code::invalid_argument);
  EXPECT_EQ(table.in_flight(), 2u) << "a task that is refused leaves nothing behind";
  EXPECT_EQ(finish(table, plan_of({"a"})).size(), 1u);
  EXPECT_TRUE(table.add(task_named({"a"})).ok());
  EXPECT_EQ(table.finish_all({Code::unknown, "over"}).size(), 2u);
}

TEST(OperationTable, ManyNamesAreFoundAmongMany) {
  OperationTable table;
  std::vector<std::string> names;
  for (int i = 0; i < 1000; i++) names.push_back("tensor." + std::to_string(i));
  for (const std::string& name : names) ASSERT_TRUE(table.add(task_named({name})).ok());
  take(table);
  std::vector<Task::Place*> found;
  table.find(plan_of(names), found);
  ASSERT_EQ(found.size(), names.size());
  for (size_t i = 0; i < names.size(); i++) EXPECT_EQ(found[i]->operation->request.name, names[i]);
  found.clear();
  table.find(plan_of({"tensor.5", "tensor.1000", "tensor.5"}, 7), found);
  EXPECT_EQ(found, (std::vector<Task::Place*>{nullptr, nullptr, nullptr}));
  EXPECT_EQ(finish(table, plan_of(names)).size(), names.size());
  EXPECT_EQ(table.in_flight(), 0u);
}

TEST(OperationTable, APlanMeansOnlyWhatTheDriverHasTaken) {
  OperationTable table;
  TaskRef task = task_named({"a"});
  ASSERT_TRUE(table.add(task).ok());
  std::vector<Task::Place*> found;
  table.find(plan_of({"a"}), found);
  EXPECT_EQ(found, std::vector<Task::Place*>{nullptr}) << "it has not been announced";
  EXPECT_EQ(take(table), std::vector<Task*>{task.get()});
  EXPECT_EQ(finish(table, plan_of({"a"})).size(), 1u);
}

TEST(OperationTable, WhatHasEndedIsNotTaken) {
  OperationTable table;
  ASSERT_TRUE(table.add(task_named({"a"})).ok());
  EXPECT_EQ(table.finish_all({Code::unknown, "over"}).size(), 1u);
  EXPECT_FALSE(table.has_new());
  EXPECT_TRUE(take(table).empty());
}

TEST(OperationTable, AGroupIsDoneWithItsLastMemberAndKeepsItsFirstError) {
  OperationTable table;
  TaskRef group = task_named({"a", "b", "c"});
  ASSERT_TRUE(table.add(group).ok());
  EXPECT_TRUE(finish(table, plan_of({"b"})).empty());
  EXPECT_TRUE(finish(table, plan_of({"c"}), {Code::precondition, "first"}).empty());
  std::vector<TaskRef> done = finish(table, plan_of({"a"}), {Code::unknown, "second"});
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].get(), group.get());
  EXPECT_EQ(group->status.message(), "first");
  EXPECT_TRUE(group->operations[1].status.ok());
  EXPECT_EQ(group->operations[0].status.message(), "second");
}

TEST(OperationTable, AHandleIsNeverMistakenForALaterOne) {
  OperationTable table;
  std::set<int64_t> handles;
  for (int i = 0; i < 100; i++) {
    TaskRef task = task_named({"a"});
    ASSERT_TRUE(table.add(task).ok());
    EXPECT_GT(task->handle, 0);
    EXPECT_TRUE(handles.insert(task->handle).second);
    EXPECT_EQ(table.find(task->handle).get(), task.get());
    finish(table, plan_of({"a"}));
    table.release(task->handle);
    EXPECT_FALSE(table.find(task->handle));
  }
  TaskRef held = task_named({"b"});
  ASSERT_TRUE(table.add(held).ok());
  for (int64_t stale : handles) {
    EXPECT_FALSE(table.find(stale));
    table.release(stale);
  }
  for (int64_t strange : {int64_t{0}, int64_t{-1}, int64_t{1}, INT64_MAX, INT64_MIN}) EXPECT_FALSE(table.find(strange));
  EXPECT_TRUE(table.find(held->handle)) << "releasing what is gone releases nothing else";
  EXPECT_EQ(finish(table, plan_of({"b"})).size(), 1u);
}

TEST(OperationTable, ATaskLivesUntilItIsReleasedAndNotInFlight) {
  OperationTable table;
  int64_t handle = 0;
  {
    TaskRef task = task_named({"a"});
    ASSERT_TRUE(table.add(task).ok());
    handle = task->handle;
  }
  table.release(handle);
  std::vector<Task*> tasks;
  table.take_new(tasks);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0]->operations[0].request.name, "a");
  std::vector<TaskRef> done = finish(table, plan_of({"a"}));
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].get(), tasks[0]);
  EXPECT_EQ(tasks[0]->references.load(), 1);
}

TEST(OperationTable, NewTasksAreTakenOnceInOrder) {
  OperationTable table;
  EXPECT_FALSE(table.has_new());
  std::vector<TaskRef> added{task_named({"a"}), task_named({"b"}), task_named({"c"})};
  std::vector<Task*> tasks;
  for (const TaskRef& task : added) ASSERT_TRUE(table.add(task).ok());
  EXPECT_TRUE(table.has_new());
  table.take_new(tasks);
  EXPECT_EQ(tasks, (std::vector<Task*>{added[0].get(), added[1].get(), added[2].get()}));
  EXPECT_FALSE(table.has_new());
  table.take_new(tasks);
  EXPECT_TRUE(tasks.empty());
  table.finish_all({Code::unknown, "over"});
}

TEST(OperationTable, AClosedOneRefusesAndEndsWhatNoBackendRuns) {
  OperationTable table;
  TaskRef idle = task_named({"idle"}), running = task_named({"running"});
  ASSERT_TRUE(table.add(idle).ok() && table.add(running).ok());
  take(table);
  running->operations[0].running = true;
  table.close({Code::peer_lost, "gone"});
  EXPECT_EQ(table.add(task_named({"late"})).code(), Code::peer_lost);
  std::vector<TaskRef> done = table.finish_all({Code::peer_lost, "gone"});
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].get(), idle.get());
  EXPECT_EQ(finish(table, plan_of({"running"})).size(), 1u);
}

TEST(Tasks, ATaskIsUsedAgainAsIfItWereNew) {
  Task* first = nullptr;
  const char* memory = nullptr;
  {
    TaskRef task = make_task(1);
    first = task.get();
    Operation& operation = task->operations[0];
    operation.request = {.name = std::string(100, 'n'), .kind = Kind::alltoall, .root_rank = 3, .shape = {1, 2}};
    operation.request.group = "group";
    operation.sent_rows = {1, 2};
    operation.received_rows = {3};
    operation.allocate = [](const TensorView&) -> std::byte* { return nullptr; };
    operation.running = true;
    operation.result = 5;
    operation.status = {Code::unknown, "failed"};
    operation.owned_output.reset(static_cast<std::byte*>(std::malloc(8)));
    task->status = {Code::unknown, "failed"};
    task->done = true;
    task->on_done = [](const Task&) {};
    memory = operation.request.name.data();
  }
  TaskRef again = make_task(1);
  ASSERT_EQ(again.get(), first);
  const Operation& operation = again->operations[0];
  EXPECT_EQ(operation.request, Request());
  EXPECT_EQ(operation.request.name.data(), memory) << "the memory of the name is kept";
  EXPECT_TRUE(operation.sent_rows.empty() && operation.received_rows.empty() && !operation.allocate);
  EXPECT_TRUE(operation.status.ok() && operation.owned_output == nullptr && !operation.running);
  EXPECT_EQ(operation.result, -1);
  EXPECT_TRUE(again->status.ok() && !again->done && !again->on_done);
  EXPECT_EQ(make_task(2)->operations.size(), 2u);
}

TEST(Tasks, TheLastOwnerMayBeAnotherThread) {
  TaskRef task = make_task(1);
  task->operations[0].request.name = "a name that is too long to be stored in the string itself";
  std::thread([task = std::move(task)] {}).join();
  EXPECT_FALSE(task);
}

// As a handler of exit() may be: it runs after the main thread's own objects are gone.
TEST(Tasks, TheLastOwnerMayOutliveTheSparesOfItsThread) {
  std::thread([] {
    thread_local TaskRef outlives;  // made first, so destroyed after the spares, which the first task brings
    outlives = TaskRef();
    outlives = make_task(1);
    outlives->operations[0].request.name = "a name that is too long to be stored in the string itself";
    { TaskRef spare = make_task(1); }
  }).join();
}

// Threads that take the turn, and others that only wait for it: none sleeps forever, and no two have it at once.
TEST(Turns, NobodyMissesAFreeTurn) {
  constexpr int kThreads = 4, kRounds = 2000;
  Turn turn;
  int guarded = 0;  // by the turn
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop) turn.park([&] { return stop.load(); });
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; round++) {
        turn.begin_waiting();
        while (!turn.try_take()) turn.sleep([] { return false; }, kNever);
        guarded++;
        turn.give_back(true);
        turn.end_waiting();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  turn.wake();
  engine.join();
  EXPECT_EQ(guarded, kThreads * kRounds);
}

}  // namespace
}  // namespace hvd
