// A world in one thread: a negotiation tree and one negotiator per rank, with time and delivery in the test's hands.
// The cases of an InEveryTree suite run in trees of all shapes, and do not depend on the shape.
#pragma once

#include <fmt/core.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"
#include "negotiation/tree.h"

namespace hvd {

// Printed in failed expectations.
inline void PrintTo(const Status& status, std::ostream* out) {
  *out << name_of(status.code()) << ": " << status.message();
}

inline Request of_kind(Kind kind, std::string name, Shape shape = {4}) {
  Request request;
  request.name = std::move(name);
  request.kind = kind;
  request.shape = std::move(shape);
  return request;
}
inline Request allreduce(std::string name, Shape shape = {4}) {
  return of_kind(Kind::allreduce, std::move(name), std::move(shape));
}
inline Request barrier() { return of_kind(Kind::barrier, "barrier.noname", {}); }
inline Request join() { return of_kind(Kind::join, "join.noname", {}); }
inline Request add_set(std::vector<int32_t> ranks) {
  Request request = of_kind(Kind::add_process_set, "add_process_set", {});
  request.ranks = std::move(ranks);
  return request;
}
inline Request remove_set(int32_t id) {
  Request request = of_kind(Kind::remove_process_set, "remove_process_set", {});
  request.process_set = id;
  return request;
}
inline Request form_set(std::vector<int32_t> ranks) {
  Request request = of_kind(Kind::form_process_set, fmt::format("form {}", fmt::join(ranks, ",")), {});
  request.ranks = std::move(ranks);
  return request;
}
inline Request leave_set(int32_t id) {
  Request request = of_kind(Kind::leave_process_set, "leave", {});
  request.process_set = id;
  return request;
}
inline Request in_set(int32_t process_set, Request request) {
  request.process_set = process_set;
  return request;
}
inline Request in_group(std::string group, uint32_t size, Request request) {
  request.group = std::move(group);
  request.group_size = size;
  return request;
}

inline std::vector<std::string> names_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const AgreedRequest& tensor : plan.tensors) names.push_back(tensor->name);
  return names;
}
inline std::vector<std::vector<std::string>> names_of(const std::vector<Plan>& plans) {
  std::vector<std::vector<std::string>> names;
  for (const Plan& plan : plans) names.push_back(names_of(plan));
  return names;
}

using Names = std::vector<std::vector<std::string>>;

class Simulation {
 public:
  explicit Simulation(int32_t size, CoordinatorSettings settings = {}, NegotiationObserver* observer = nullptr,
                      const TreeShape& shape = default_shape)
      : tree(size, shape, settings, observer), root(*tree.root) {
    for (int32_t rank = 0; rank < size; rank++) ranks.push_back(std::make_unique<Negotiator>(size));
  }

  int32_t size() const { return static_cast<int32_t>(ranks.size()); }

  // The rank announces, and the root gets the message.
  Status try_submit(int32_t rank, const Request& request) {
    ranks[rank]->announce(request);
    return flush(rank);
  }
  void submit(int32_t rank, const Request& request) {
    Status status = try_submit(rank, request);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void submit_all(const Request& request) {
    for (int32_t rank = 0; rank < size(); rank++) submit(rank, request);
  }
  Status flush(int32_t rank) {
    ByteView view = ranks[rank]->outgoing();
    last_up_bytes = view.size();
    Status status = tree.up(rank, view, now);
    ranks[rank]->clear_outgoing();
    return status;
  }

  // One message of the root, read by every rank; all read the same. Empty: the root had nothing to say.
  std::vector<Decision> decide() {
    Bytes message;
    tree.tick(now);
    if (!root.decide(now, message)) return {};
    last_down_bytes = message.size();
    tree.down(message, now);
    std::vector<Decision> decisions;
    for (const auto& rank : ranks) {
      decisions.clear();
      Status status = rank->receive(message, decisions);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return decisions;
  }
  std::vector<Plan> plans() {
    std::vector<Plan> plans;
    for (Decision& decision : decide()) {
      if (Plan* plan = std::get_if<Plan>(&decision)) plans.push_back(std::move(*plan));
    }
    return plans;
  }
  // All ranks submit it and it is planned.
  Plan run(const Request& request) {
    submit_all(request);
    std::vector<Plan> all = plans();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Plan{} : all.front();
  }
  // The decision of this type in the root's next message, or a default one with a failed expectation.
  template <class Type>
  Type decide_one() {
    std::vector<Decision> decisions = decide();
    for (Decision& decision : decisions) {
      if (Type* found = std::get_if<Type>(&decision)) return *found;
    }
    ADD_FAILURE() << "no such decision among " << decisions.size();
    return {};
  }
  void pass(double value) { now += seconds(value); }
  void expect_deadline(TimePoint deadline) const { tree.expect_deadline(deadline); }

  TimePoint now = TimePoint{} + std::chrono::hours(1);
  Tree tree;
  Coordinator& root;
  std::vector<std::unique_ptr<Negotiator>> ranks;
  size_t last_up_bytes = 0, last_down_bytes = 0;
  static inline TreeShape default_shape = flat();
};

class InEveryTree : public testing::TestWithParam<TreeShape> {
 protected:
  void SetUp() override { Simulation::default_shape = GetParam(); }
  void TearDown() override { Simulation::default_shape = flat(); }
};
inline std::string name_of_shape(const testing::TestParamInfo<TreeShape>& shape) { return shape.param.name; }

}  // namespace hvd
