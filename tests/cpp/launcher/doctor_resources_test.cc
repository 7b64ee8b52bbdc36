#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/doctor/probe.h"

namespace hvd::launcher {
namespace {

// A /proc and /sys of our own.
class DoctorResources : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "doctor.XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    root_ = path;
    write("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\nBuffers: 2 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(DoctorResources, WithoutControlGroupsTheMachineIsTheLimit) {
  Resources found = read_resources(root_);
  EXPECT_EQ(found.memory, uint64_t{8000000} << 10);
  EXPECT_EQ(found.quota, std::nullopt);
  EXPECT_FALSE(found.has_rdma);
}

TEST_F(DoctorResources, TheTightestGroupAboveUsCounts) {
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/user/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/user/job/memory.max", "3000\n");
  write("/sys/fs/cgroup/user/job/memory.current", "1000\n");
  write("/sys/fs/cgroup/user/memory.max", "max\n");
  write("/sys/fs/cgroup/user/memory.current", "1000\n");
  Resources found = read_resources(root_);
  EXPECT_EQ(found.quota, 1.5);
  EXPECT_EQ(found.memory, 2000U);
}

TEST_F(DoctorResources, AGroupThatIsOverItsLimitHasNothingLeft) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "3000\n");
  write("/sys/fs/cgroup/memory.current", "4000\n");
  EXPECT_EQ(read_resources(root_).memory, 0U);
}

TEST_F(DoctorResources, AGroupOutsideOfTheContainerDoesNotConfuse) {
  write("/proc/self/cgroup", "0::/../../kubepods\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(read_resources(root_).quota, 2);
}

TEST_F(DoctorResources, OlderGroupsHaveFilesOfTheirOwn) {
  write("/proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  Resources found = read_resources(root_);
  EXPECT_EQ(found.quota, 0.5);
  EXPECT_EQ(found.memory, uint64_t{8000000} << 10);
}

TEST_F(DoctorResources, RdmaDevicesAreSeen) {
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/mlx5_0");
  EXPECT_TRUE(read_resources(root_).has_rdma);
}

TEST(DoctorResourcesHere, AreThoseOfThisMachine) {
  Resources found = read_resources();
  EXPECT_GT(found.cores, 0);
  EXPECT_GT(found.memory, 0U);
  EXPECT_NE(found.kernel, "");
  EXPECT_NE(found.machine, "");
}

}  // namespace
}  // namespace hvd::launcher
