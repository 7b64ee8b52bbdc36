#include "adapters/tensorflow/done_callback.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace hvd::tensorflow {
namespace {

TF_AsyncOpKernelDoneCallback* as_callback(Finish* function) {
  return reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(function);
}

TEST(DoneCallbackTest, CopyOutlivesTheOriginal) {
  auto calls = std::make_shared<std::array<int, 16>>();  // shared: a copy of the bytes alone would not keep it alive
  auto original = std::make_unique<Finish>([calls, large = std::array<int, 8>{1}] { (*calls)[0] += large[0]; });
  std::optional<Finish> copy = copy_callback(as_callback(original.get()));
  original.reset();
  ASSERT_TRUE(copy.has_value());
  (*copy)();
  EXPECT_EQ((*calls)[0], 1);
  EXPECT_EQ(calls.use_count(), 2);
  copy.reset();
  EXPECT_EQ(calls.use_count(), 1);
}

TEST(DoneCallbackTest, WhatIsNoFunctionIsNotCalled) {
  EXPECT_FALSE(copy_callback(nullptr).has_value());
  Finish empty;
  EXPECT_FALSE(copy_callback(as_callback(&empty)).has_value());
  // A callback of another layout: plain numbers, or pointers into the heap, where the functions should be.
  auto heap = std::make_unique<int>(0);
  alignas(Finish) std::array<void*, 4> numbers{nullptr, nullptr, reinterpret_cast<void*>(7),
                                               reinterpret_cast<void*>(9)};
  EXPECT_FALSE(copy_callback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&numbers)).has_value());
  numbers = {heap.get(), heap.get(), heap.get(), heap.get()};
  EXPECT_FALSE(copy_callback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&numbers)).has_value());
}

}  // namespace
}  // namespace hvd::tensorflow
