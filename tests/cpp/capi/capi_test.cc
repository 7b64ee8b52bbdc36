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
