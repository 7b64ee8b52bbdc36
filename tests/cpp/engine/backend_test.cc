// A backend from its own library takes the plans it accepts and completes them from its own thread.
#include <gmock/gmock.h>

#include "support/engines.h"

namespace hvd {
namespace {

using test::finish;
using test::Floats;

Config with_backend(const std::string& path) {
  Config config = test::small_config();
  config.backends = {path};
  return config;
}

TEST(Backends, APlanGoesToTheFirstThatAccepts) {
  test::run_engines(3, with_backend(HVD_LATER_BACKEND), [](Engine& engine) {
    for (int round = 0; round < 20; round++) {
      std::vector<Floats> tensors(6, Floats{std::vector<float>(500, 1.f)});
      std::vector<TaskRef> submissions;
      for (size_t i = 0; i < tensors.size(); i++) {
        Operation operation = tensors[i].allreduce("t" + std::to_string(i));
        if (i % 2 == 0) operation.request.device = operation.input.device = operation.output.device = 7;
        auto submission = test::submit(engine, std::move(operation));
        ASSERT_TRUE(submission.ok());
        submissions.push_back(*submission);
      }
      for (size_t i = 0; i < tensors.size(); i++) {
        ASSERT_TRUE(engine.wait(submissions[i], kNever));
        ASSERT_TRUE(submissions[i]->status.ok()) << submissions[i]->status.message();
        ASSERT_EQ(tensors[i].data[499], 3.f);
      }
    }
  });
}

TEST(Backends, ADeviceNobodyServesIsAnErrorAndNotAHang) {
  test::run_engines(2, with_backend(HVD_LATER_BACKEND), [](Engine& engine) {
    Floats tensor{{1.f}};
    Operation operation = tensor.allreduce("elsewhere");
    operation.request.device = operation.input.device = operation.output.device = 3;
    Status status = finish(engine, std::move(operation));
    EXPECT_EQ(status.code(), Code::unknown);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("device 3"));
    EXPECT_TRUE(test::barrier(engine).ok());
  });
}

TEST(Backends, AMissingLibraryIsNamed) {
  test::run_groups(1, test::Where::threads, [](HostGroup group) {
    auto engine = Engine::create({}, with_backend("/nowhere/libnothing.so"), WorldGroup{.host = std::move(group)});
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(std::string(engine.status().message()), testing::HasSubstr("/nowhere/libnothing.so"));
  });
}

}  // namespace
}  // namespace hvd
