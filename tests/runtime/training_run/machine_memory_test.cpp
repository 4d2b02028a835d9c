// Limits of control groups, read from a folder that looks like /sys/fs/cgroup.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/training_run/machine_memory.hpp"

namespace mgplan::runtime::machine_memory_test {
namespace {

class MachineMemoryTest : public testing::Test {
protected:
    ~MachineMemoryTest() override { std::filesystem::remove_all(root); }
    void write(const std::string& file, const std::string& text) const {
        std::filesystem::create_directories((root / file).parent_path());
        std::ofstream(root / file) << text;
    }
    const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / ("mgplan_groups_" + std::to_string(::getpid()));
};

TEST_F(MachineMemoryTest, IsTheSmallestLimitAboveTheProcess) {
    write("user/job/memory.max", "max\n");
    write("user/memory.max", "2000000\n");
    write("memory.max", "3000000\n");
    EXPECT_EQ(control_group_limit("0::/user/job\n", root), 2'000'000);
    write("user/job/memory.max", "1000000\n");
    EXPECT_EQ(control_group_limit("0::/user/job\n", root), 1'000'000);
    EXPECT_EQ(control_group_limit("0::/a/path/that/is/not/mounted/here\n", root), 3'000'000);
}

TEST_F(MachineMemoryTest, ReadsTheFirstVersionToo) {
    write("memory/docker/ab/memory.limit_in_bytes", "500000\n");
    write("memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(control_group_limit("5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n", root), 500'000);
    EXPECT_EQ(control_group_limit("5:cpu,cpuacct:/docker/ab\n", root), std::nullopt);
}

TEST_F(MachineMemoryTest, KnowsNoLimitWhereThereIsNone) {
    EXPECT_EQ(control_group_limit("", root), std::nullopt);
    EXPECT_EQ(control_group_limit("no colon\n0::\n", root), std::nullopt);
    EXPECT_GT(machine_memory().bytes, 0);
}

}  // namespace
}  // namespace mgplan::runtime::machine_memory_test
