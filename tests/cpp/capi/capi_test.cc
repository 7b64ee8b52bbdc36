// The C ABI in a world of one process: everything works without a launcher.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "horovod/horovod.h"

extern "C" int hvd_test_header_from_c(void);

namespace {

hvd_tensor tensor_of(std::vector<float>& data, const int64_t* shape) {
  return {.struct_size = sizeof(hvd_tensor),
          .dtype = HVD_FLOAT32,
          .device = HVD_HOST_DEVICE,
          .ndim = 1,
          .shape = shape,
          .data = data.data(),
          .stream = nullptr,
          .ready_event = nullptr};
}

class CApi : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(hvd_init(0, nullptr, nullptr), HVD_OK) << hvd_last_error(); }
  void TearDown() override { hvd_shutdown(); }

  hvd_request request(hvd_kind kind, const char* name) {
    hvd_request request{};
    request.struct_size = sizeof request;
    request.kind = kind;
    request.reduce_op = HVD_SUM;
    request.name = name;
    request.prescale_factor = request.postscale_factor = 1.0;
    request.input = tensor_of(data_, &count_);
    request.output = request.input;
    return request;
  }

  std::vector<float> data_{1, 2, 3, 4};
  int64_t count_ = 4;
};

TEST(CApiVersion, IsThatOfTheHeader) {
  EXPECT_EQ(hvd_abi_version(), HVD_ABI_VERSION);
  EXPECT_GE(hvd_test_header_from_c(), 2);
}

TEST(CApiLife, NothingWorksBeforeInit) {
  EXPECT_EQ(hvd_rank(), -HVD_NOT_INITIALIZED);
  EXPECT_THAT(hvd_last_error(), testing::HasSubstr("has not been initialized"));
  hvd_handle handle = 0;
  EXPECT_EQ(hvd_submit(nullptr, 0, nullptr, &handle), HVD_NOT_INITIALIZED);
  hvd_request unused{};
  handle = 77;
  EXPECT_EQ(hvd_submit_many(&unused, 1, nullptr, &handle), HVD_NOT_INITIALIZED);
  EXPECT_EQ(handle, 0);
}

TEST(CApiLife, InitAndShutdownCanBeRepeated) {
  for (int round = 0; round < 20; round++) {
    ASSERT_EQ(hvd_init(0, nullptr, nullptr), HVD_OK) << hvd_last_error();
    ASSERT_EQ(hvd_init(0, nullptr, nullptr), HVD_OK) << "the second call does nothing";
    EXPECT_EQ(hvd_size(), 1);
    ASSERT_EQ(hvd_shutdown(), HVD_OK);
    ASSERT_EQ(hvd_shutdown(), HVD_OK);
    EXPECT_EQ(hvd_is_initialized(), 0);
  }
}

TEST_F(CApi, AnAllreduceScalesInPlace) {
  hvd_request wanted = request(HVD_ALLREDUCE, "a");
  wanted.prescale_factor = 3;
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_OK) << hvd_last_error();
  ASSERT_EQ(hvd_wait(handle, -1), HVD_OK) << hvd_last_error();
  EXPECT_EQ(hvd_poll(handle), 1);
  EXPECT_THAT(data_, testing::ElementsAre(3, 6, 9, 12));
  hvd_release(handle);
  EXPECT_EQ(hvd_poll(handle), -HVD_INVALID_ARGUMENT);
}

TEST_F(CApi, EngineMemoryIsHandedOverWithoutACopy) {
  hvd_request wanted = request(HVD_ALLGATHER, "g");
  wanted.output.data = nullptr;
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_OK);
  ASSERT_EQ(hvd_wait(handle, -1), HVD_OK);
  hvd_tensor seen{}, taken{};
  ASSERT_EQ(hvd_result(handle, 0, &seen), HVD_OK);
  ASSERT_EQ(hvd_take_result(handle, 0, &taken), HVD_OK);
  EXPECT_EQ(seen.data, taken.data);
  EXPECT_EQ(taken.shape[0], 4);
  EXPECT_EQ(std::memcmp(taken.data, data_.data(), 16), 0);
  hvd_release(handle);
  hvd_free(taken.data);
}

TEST_F(CApi, OutputsCanBeAllocatedByTheCaller) {
  std::vector<float> mine;
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.allocate = [](void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape) -> void* {
    EXPECT_EQ(index, 0);
    EXPECT_EQ(dtype, HVD_FLOAT32);
    EXPECT_EQ(ndim, 1);
    auto* memory = static_cast<std::vector<float>*>(context);
    memory->resize(static_cast<size_t>(shape[0]));
    return memory->data();
  };
  options.allocate_context = &mine;
  hvd_request wanted = request(HVD_ALLTOALL, "x");
  int32_t splits[] = {3};
  wanted.splits = splits;
  wanted.splits_count = 1;
  wanted.output.data = nullptr;
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(&wanted, 1, &options, &handle), HVD_OK) << hvd_last_error();
  ASSERT_EQ(hvd_wait(handle, -1), HVD_OK);
  EXPECT_THAT(mine, testing::ElementsAre(1, 2, 3));
  int32_t received = 0;
  EXPECT_EQ(hvd_received_splits(handle, 0, &received, 1), 1);
  EXPECT_EQ(received, 3);
  hvd_release(handle);
}

TEST_F(CApi, TheCallbackRunsOnceWithTheOutcome) {
  static std::atomic<int> calls;
  calls = 0;
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.done = [](void*, hvd_handle handle, hvd_code code) {
    EXPECT_EQ(code, HVD_OK);
    hvd_release(handle);
    calls++;
    calls.notify_all();
  };
  hvd_request wanted = request(HVD_BROADCAST, "b");
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(&wanted, 1, &options, &handle), HVD_OK);
  calls.wait(0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(hvd_poll(handle), -HVD_INVALID_ARGUMENT) << "the callback released it";
}

TEST_F(CApi, BadRequestsAreRefusedWithWords) {
  hvd_handle handle = 0;
  hvd_request wanted = request(HVD_ALLREDUCE, "");
  EXPECT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_INVALID_ARGUMENT);
  EXPECT_THAT(hvd_last_error(), testing::HasSubstr("name"));
  wanted = request(HVD_ALLREDUCE, "a");
  wanted.input.dtype = 99;
  EXPECT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_INVALID_ARGUMENT);
  wanted = request(HVD_ALLREDUCE, "a");
  wanted.struct_size = 8;
  EXPECT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_INVALID_ARGUMENT);
  wanted = request(HVD_ALLREDUCE, "a");
  wanted.process_set = 5;
  EXPECT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_INVALID_ARGUMENT);
}

TEST_F(CApi, ManyRequestsHaveTheirOwnOutcomes) {
  std::vector<float> first{1, 2, 3, 4}, third{5, 6, 7, 8};
  std::vector<hvd_request> wanted{request(HVD_ALLREDUCE, "a"), request(HVD_ALLGATHER, "b"),
                                  request(HVD_ALLREDUCE, "c")};
  wanted[0].input = wanted[0].output = tensor_of(first, &count_);
  wanted[0].prescale_factor = 2;
  wanted[1].output.data = nullptr;
  wanted[2].input = wanted[2].output = tensor_of(third, &count_);
  std::vector<hvd_handle> handles(3);
  for (uint32_t wait_follows : {0u, 1u, 2u}) {
    hvd_submit_options options{};
    options.struct_size = sizeof options;
    options.wait_follows = wait_follows;
    ASSERT_EQ(hvd_submit_many(wanted.data(), 3, &options, handles.data()), HVD_OK) << hvd_last_error();
    EXPECT_NE(handles[0], handles[2]);
    ASSERT_EQ(hvd_wait_many(handles.data(), 3, -1), HVD_OK) << hvd_last_error();
    hvd_tensor gathered{};
    ASSERT_EQ(hvd_result(handles[1], 0, &gathered), HVD_OK);
    EXPECT_EQ(std::memcmp(gathered.data, data_.data(), 16), 0);
    hvd_release_many(handles.data(), 3);
    for (hvd_handle handle : handles) EXPECT_EQ(hvd_poll(handle), -HVD_INVALID_ARGUMENT);
  }
  EXPECT_THAT(first, testing::ElementsAre(8, 16, 24, 32));
  EXPECT_THAT(third, testing::ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(hvd_submit_many(nullptr, 0, nullptr, nullptr), HVD_OK);
  EXPECT_EQ(hvd_wait_many(nullptr, 0, -1), HVD_OK);
}

TEST_F(CApi, ManyRequestsAreDoneInTheBackground) {
  static std::atomic<int> calls;
  calls = 0;
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.done = [](void*, hvd_handle, hvd_code code) {
    EXPECT_EQ(code, HVD_OK);
    calls++;
    calls.notify_all();
  };
  std::vector<std::string> names;
  for (int i = 0; i < 300; i++) names.push_back("tensor " + std::to_string(i));
  std::vector<hvd_request> wanted;
  for (const std::string& name : names) wanted.push_back(request(HVD_BROADCAST, name.c_str()));
  std::vector<hvd_handle> handles(wanted.size());
  ASSERT_EQ(hvd_submit_many(wanted.data(), 300, &options, handles.data()), HVD_OK);
  for (int seen = 0; seen < 300; seen = calls) calls.wait(seen);
  hvd_release_many(handles.data(), 300);
}

TEST_F(CApi, WhatComesBeforeARefusedRequestIsSubmitted) {
  static std::atomic<int> calls;
  calls = 0;
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.done = [](void*, hvd_handle, hvd_code) {
    calls++;
    calls.notify_all();
  };
  std::vector<float> other{1, 2, 3, 4};
  std::vector<hvd_request> wanted{request(HVD_ALLREDUCE, "a"), request(HVD_ALLREDUCE, "b"), request(HVD_ALLREDUCE, "c"),
                                  request(HVD_ALLREDUCE, "d")};
  wanted[0].prescale_factor = 3;
  wanted[1].input = wanted[1].output = tensor_of(other, &count_);
  wanted[2].process_set = 5;
  std::vector<hvd_handle> handles(4, 77);
  EXPECT_EQ(hvd_submit_many(wanted.data(), 4, &options, handles.data()), HVD_INVALID_ARGUMENT);
  EXPECT_THAT(hvd_last_error(), testing::StartsWith("c: "));
  EXPECT_GT(handles[0], 0);
  EXPECT_GT(handles[1], 0);
  EXPECT_EQ(handles[2], 0);
  EXPECT_EQ(handles[3], 0);
  for (int seen = 0; seen < 2; seen = calls) calls.wait(seen);  // the background thread was woken for them all the same
  EXPECT_EQ(hvd_wait_many(handles.data(), 4, -1), HVD_OK) << hvd_last_error();
  EXPECT_THAT(data_, testing::ElementsAre(3, 6, 9, 12));
  hvd_release_many(handles.data(), 4);
  EXPECT_EQ(hvd_wait_many(handles.data(), 4, -1), HVD_INVALID_ARGUMENT) << "they are forgotten";
}

TEST_F(CApi, WaitingForManyEndsWithTheFailureOnceAllAreDone) {
  hvd_request wanted[] = {request(HVD_ALLREDUCE, "a"), request(HVD_ALLGATHER, "b"), request(HVD_ALLREDUCE, "c")};
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.allocate = [](void*, int32_t, int32_t, int32_t, const int64_t*) -> void* { return nullptr; };
  wanted[1].output.data = nullptr;
  hvd_handle handles[3] = {};
  ASSERT_EQ(hvd_submit_many(wanted, 3, &options, handles), HVD_OK) << hvd_last_error();
  EXPECT_EQ(hvd_wait_many(handles, 3, -1), HVD_UNKNOWN);
  EXPECT_STRNE(hvd_last_error(), "");
  for (hvd_handle handle : handles) EXPECT_EQ(hvd_poll(handle), 1);
  EXPECT_EQ(hvd_wait(handles[1], -1), HVD_UNKNOWN);
  hvd_release_many(handles, 3);
}

TEST_F(CApi, JoinAndBarrierWorkAlone) {
  for (hvd_kind kind : {HVD_BARRIER, HVD_JOIN}) {
    hvd_request wanted = request(kind, nullptr);
    hvd_handle handle = 0;
    ASSERT_EQ(hvd_submit(&wanted, 1, nullptr, &handle), HVD_OK);
    ASSERT_EQ(hvd_wait(handle, -1), HVD_OK);
    EXPECT_EQ(hvd_result_value(handle), kind == HVD_JOIN ? 0 : -1);
    hvd_release(handle);
  }
}

TEST(CApiKnobs, AreJson) {
  EXPECT_EQ(hvd_knobs_json()[0], '[');
  EXPECT_THAT(hvd_knobs_json(), testing::HasSubstr("HOROVOD_FUSION_THRESHOLD"));
}

}  // namespace
