#include "negotiation/fusion.h"

#include "negotiation/simulation.h"

namespace hvd {
namespace {

using Indexes = std::vector<std::vector<uint32_t>>;

Indexes fuse_requests(const std::vector<Request>& requests, FusionSettings settings) {
  std::vector<FusionItem> items;
  for (const Request& request : requests) {
    items.push_back({.request = &request, .bytes = fused_bytes(request, 2)});
  }
  FusedPlans plans;
  fuse(items, settings, plans);
  Indexes indexes;
  uint32_t start = 0;
  for (uint32_t end : plans.ends) {
    indexes.emplace_back(plans.order.begin() + start, plans.order.begin() + end);
    start = end;
  }
  return indexes;
}

TEST(Fusion, FillsAPlanUpToTheThreshold) {
  std::vector<Request> requests(5, allreduce("a", {25}));  // 100 bytes each
  EXPECT_EQ(fuse_requests(requests, {.threshold = 200}), (Indexes{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(fuse_requests(requests, {.threshold = 299}), (Indexes{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(fuse_requests(requests, {.threshold = 1000}), (Indexes{{0, 1, 2, 3, 4}}));
}

TEST(Fusion, ThresholdOfZeroDisablesIt) {
  std::vector<Request> requests(2, allreduce("a", {0}));
  EXPECT_EQ(fuse_requests(requests, {.threshold = 0}), (Indexes{{0}, {1}}));
}

TEST(Fusion, LooksAheadOverTensorsThatDoNotMatch) {
  Request other = allreduce("b", {25});
  other.dtype = DType::i32;
  std::vector<Request> requests{allreduce("a", {25}), other, allreduce("a", {25}), other};
  EXPECT_EQ(fuse_requests(requests, {.threshold = 1000}), (Indexes{{0, 2}, {1, 3}}));
}

TEST(Fusion, LooksAheadOverTensorsThatDoNotFit) {
  std::vector<Request> requests{allreduce("a", {15}), allreduce("a", {20}), allreduce("a", {10})};
  EXPECT_EQ(fuse_requests(requests, {.threshold = 100}), (Indexes{{0, 2}, {1}}));
}

TEST(Fusion, TensorLargerThanTheThresholdIsAlone) {
  std::vector<Request> requests{allreduce("a", {1000}), allreduce("a", {1}), allreduce("a", {1})};
  EXPECT_EQ(fuse_requests(requests, {.threshold = 100}), (Indexes{{0}, {1, 2}}));
}

TEST(Fusion, OnlyReductionsAndAllgathersAreFused) {
  for (Kind kind : {Kind::allreduce, Kind::allgather, Kind::reducescatter}) {
    EXPECT_EQ(fuse_requests({2, of_kind(kind, "a")}, {.threshold = 1000}).size(), 1u) << name_of(kind);
  }
  for (Kind kind : {Kind::broadcast, Kind::alltoall, Kind::barrier}) {
    EXPECT_EQ(fuse_requests({2, of_kind(kind, "a")}, {.threshold = 1000}).size(), 2u) << name_of(kind);
  }
  Request adasum = allreduce("a");
  adasum.reduce_op = ReduceOp::adasum;
  EXPECT_EQ(fuse_requests({2, adasum}, {.threshold = 1000}).size(), 2u);
}

TEST(Fusion, EveryAttributeSeparatesPlans) {
  std::vector<Request> requests(8, allreduce("a"));
  requests[1].kind = Kind::reducescatter;
  requests[2].dtype = DType::i32;
  requests[3].device = 0;
  requests[4].reduce_op = ReduceOp::max;
  requests[5].prescale = 2;
  requests[6].postscale = 2;
  requests[7].process_set = 1;
  EXPECT_EQ(fuse_requests(requests, {.threshold = 1000}).size(), 8u);
}

TEST(Fusion, AllgatherIsEstimatedForAllRanks) {
  std::vector<Request> requests(2, of_kind(Kind::allgather, "a", {25}));
  EXPECT_EQ(fuse_requests(requests, {.threshold = 399}).size(), 2u);
  EXPECT_EQ(fuse_requests(requests, {.threshold = 400}).size(), 1u);
}

TEST(Fusion, DisabledGroupFusionKeepsGroupsApart) {
  std::vector<Request> requests{allreduce("a"), in_group("g", 2, allreduce("b")), in_group("h", 1, allreduce("c")),
                                in_group("g", 2, allreduce("d")), allreduce("e")};
  EXPECT_EQ(fuse_requests(requests, {.threshold = 1000, .disable_group_fusion = true}), (Indexes{{0, 4}, {1, 3}, {2}}));
  EXPECT_EQ(fuse_requests(requests, {.threshold = 1000}), (Indexes{{0, 1, 2, 3, 4}}));
}

TEST(Fusion, DevicesOfAllRanksSeparatePlans) {
  Request request = allreduce("a");
  request.device = 0;
  std::vector<Device> one{0, 1}, other{0, 2};
  std::vector<FusionItem> items{{.request = &request, .devices = &one, .bytes = 4},
                                {.request = &request, .devices = &other, .bytes = 4},
                                {.request = &request, .devices = &one, .bytes = 4}};
  FusedPlans plans;
  fuse(items, {.threshold = 1000}, plans);
  EXPECT_EQ(plans.order, (std::vector<uint32_t>{0, 2, 1}));
  EXPECT_EQ(plans.ends, (std::vector<uint32_t>{2, 3}));
}

TEST(Fusion, ErrorsStayAlone) {
  Simulation world(2);
  for (const char* name : {"a", "b", "c"}) world.submit(0, allreduce(name));
  world.submit(1, allreduce("a"));
  world.submit(1, allreduce("b", {9}));
  world.submit(1, allreduce("c"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a", "c"}, {"b"}}));
}

TEST(Fusion, CachedAndNewTensorsShareAPlan) {
  Simulation world(2);
  world.run(allreduce("a"));
  world.submit_all(allreduce("a"));
  world.submit_all(allreduce("b"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a", "b"}}));
}

}  // namespace
}  // namespace hvd
