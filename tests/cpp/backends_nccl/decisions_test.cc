// The decisions of the NCCL backend that are pure functions: the agreement at init, the members of a communicator, the
// arithmetic, and the search for libraries.
#include <gmock/gmock.h>

#include <set>

#include "backends/nccl/arithmetic.h"
#include "backends/nccl/communicator.h"
#include "backends/nccl/libraries.h"
#include "backends/nccl/offer.h"

namespace hvd {
namespace {

using ::testing::HasSubstr;

GpuOffer usable(int version) { return {.is_usable = 1, .version = version}; }

GpuOffer unusable(const std::string& reason) {
  LibrarySearch found;
  found.reason = reason;
  return gpu_offer(found, "");
}

TEST(GpuAgreement, NeedsEveryRankAndOneRelease) {
  EXPECT_TRUE(decide_on_nccl(std::vector{usable(22705), usable(22703)}).use_nccl);
  EXPECT_TRUE(decide_on_nccl(std::vector{usable(22705), usable(0)}).use_nccl) << "compared when it is loaded";
  GpuDecision differ = decide_on_nccl(std::vector{usable(0), usable(22705), usable(21805)});
  EXPECT_FALSE(differ.use_nccl);
  EXPECT_EQ(differ.reason, "rank 1 has NCCL 2.27.5, rank 2 has NCCL 2.18.5");
}

TEST(GpuAgreement, NamesTheFirstRankThatCannot) {
  GpuDecision decision = decide_on_nccl(std::vector{usable(0), unusable("no driver"), unusable("other")});
  EXPECT_FALSE(decision.use_nccl);
  EXPECT_TRUE(decision.is_surprise);
  EXPECT_FALSE(decision.is_error);
  EXPECT_EQ(decision.reason, "rank 1: no driver");
  EXPECT_FALSE(decide_on_nccl(std::vector{unusable("a"), unusable("b")}).is_surprise) << "a job without GPUs";
}

TEST(GpuAgreement, IsAnErrorIfARankInsists) {
  GpuOffer insists = usable(0);
  insists.is_required = 1;
  EXPECT_TRUE(decide_on_nccl(std::vector{insists, unusable("no driver")}).is_error);
  EXPECT_FALSE(decide_on_nccl(std::vector{insists, usable(0)}).is_error);
}

Introduction member(int32_t rank, const std::string& host, const std::string& gpu) {
  Introduction introduction{.rank = rank, .version = 22705, .is_ready = 1};
  set_text(introduction.host, host);
  set_text(introduction.pci_id, gpu);
  return introduction;
}

TEST(Members, OfOneGpuAreNamed) {
  EXPECT_TRUE(judge(std::vector{member(0, "a", "01:00"), member(1, "a", "02:00"), member(2, "b", "01:00")}).ok());
  Status status = judge(std::vector{member(0, "a", "01:00"), member(2, "b", "01:00"), member(5, "b", "01:00")});
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 and rank 5 both use the GPU 01:00 of host b"));
}

TEST(Members, ThatAreNotReadyGiveTheirReason) {
  Introduction broken = member(1, "a", "");
  broken.is_ready = 0;
  set_text(broken.text, "cuInit failed");
  EXPECT_THAT(std::string(judge(std::vector{member(0, "a", "x"), broken}).message()),
              HasSubstr("rank 1 cannot use its GPU: cuInit failed"));
}

NcclReduction average(DType dtype, int32_t ranks) {
  Request request{.reduce_op = ReduceOp::average, .dtype = dtype};
  return nccl_reduction_of(request, ranks);
}

TEST(Arithmetic, AveragesSixteenBitsWithoutBias) {
  for (int32_t ranks = 1; ranks < 200; ranks++) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      NcclReduction reduction = average(dtype, ranks);
      if (reduction.op == NcclOp::average) {
        EXPECT_EQ(ranks & (ranks - 1), 0);
        continue;
      }
      EXPECT_DOUBLE_EQ(reduction.before * reduction.after * ranks, 1.0);
      EXPECT_LE(reduction.before * ranks, 1.0) << "the sum must not overflow";
    }
  }
  EXPECT_EQ(average(DType::f32, 3).op, NcclOp::average);
  EXPECT_EQ(average(DType::i32, 4).after, 0.25) << "as on the CPU: a sum and a factor in float64, truncated";
}

TEST(Arithmetic, RoundsFactorsOfFloat16First) {
  Request request{.reduce_op = ReduceOp::sum, .dtype = DType::f16, .prescale = 0.1};
  EXPECT_EQ(nccl_reduction_of(request, 2).before, 0.0999755859375);
}

TEST(Arithmetic, StagesWhatNcclHasNoTypeFor) {
  for (DType dtype : {DType::i16, DType::u16, DType::boolean, DType::c64, DType::c128}) {
    EXPECT_FALSE(can_use_nccl({.kind = Kind::allreduce, .dtype = dtype}));
    EXPECT_TRUE(can_use_nccl({.kind = Kind::allgather, .dtype = dtype}));
  }
  EXPECT_TRUE(can_use_nccl({.kind = Kind::allreduce, .reduce_op = ReduceOp::adasum}));
  EXPECT_FALSE(can_use_nccl({.kind = Kind::allreduce, .reduce_op = ReduceOp::adasum, .dtype = DType::i32}));
}

TEST(Libraries, AreSearchedInOrder) {
  std::set<std::string> files{"/path/libcuda.so.1", "/lib/libnccl.so.2", "/home/lib/libnccl.so.2",
                              "/conda/lib/libnccl.so.2", "/site/nvidia/nccl/lib/libnccl.so.2"};
  auto search = [&](LibraryPlaces places) {
    places.library_path = "/none:/path";
    return find_libraries(places, [&](const std::string& path) { return files.contains(path); });
  };
  EXPECT_EQ(search({.nccl_library = "/lib", .nccl_home = "/home"}).nccl, "/lib/libnccl.so.2");
  EXPECT_EQ(search({.nccl_library = "/lib/libnccl.so.2"}).nccl, "/lib/libnccl.so.2");
  EXPECT_EQ(search({.nccl_home = "/home", .conda_prefix = "/conda"}).nccl, "/home/lib/libnccl.so.2");
  EXPECT_EQ(search({.conda_prefix = "/conda", .site_packages = "/site"}).nccl, "/site/nvidia/nccl/lib/libnccl.so.2");
  EXPECT_EQ(search({.conda_prefix = "/conda"}).nccl, "/conda/lib/libnccl.so.2");
  EXPECT_TRUE(search({.conda_prefix = "/conda"}).is_usable());
  EXPECT_THAT(search({}).reason, HasSubstr("HOROVOD_NCCL_LIB"));
}

TEST(Libraries, TellVersions) {
  EXPECT_EQ(nccl_version_text(22705), "2.27.5");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace hvd
