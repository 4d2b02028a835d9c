// Processors that a process may use: its affinity mask and the quota of its control groups.

#include "plan/allowed_processors.hpp"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace mgplan::allowed_processors_test {
namespace {

namespace fs = std::filesystem;

/// An empty folder, removed with its content.
struct Folder {
    fs::path path = fs::temp_directory_path() / ("mgplan-processors-" + std::to_string(::getpid()));
    Folder() { fs::remove_all(path); }
    ~Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
};

void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
}

TEST(AllowedProcessors, AreThoseOfTheAffinityMask) {
    cpu_set_t all, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_processors(), 1);
    ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
    EXPECT_GE(allowed_processors(), 1);
    EXPECT_LE(allowed_processors(), CPU_COUNT(&all));
}

TEST(AllowedProcessors, AreNoMoreThanTheQuotaOfAControlGroupOrOneAboveIt) {
    const Folder root;
    EXPECT_EQ(processors_by_quota("0::/job/step", root.path), 0);
    write(root.path / "job/step/cpu.max", "max 100000");
    EXPECT_EQ(processors_by_quota("0::/job/step", root.path), 0);
    write(root.path / "job/cpu.max", "350000 100000");
    EXPECT_EQ(processors_by_quota("0::/job/step", root.path), 4) << "three and a half";
    write(root.path / "job/step/cpu.max", "200000 100000");
    EXPECT_EQ(processors_by_quota("0::/job/step", root.path), 2);
    EXPECT_EQ(processors_by_quota("0::/elsewhere", root.path), 0);
}

TEST(AllowedProcessors, ReadTheOlderControlGroups) {
    const Folder root;
    write(root.path / "cpu/job/cpu.cfs_quota_us", "-1");
    write(root.path / "cpu/job/cpu.cfs_period_us", "100000");
    EXPECT_EQ(processors_by_quota("5:memory:/job\n4:cpu,cpuacct:/job\n", root.path), 0);
    write(root.path / "cpu/job/cpu.cfs_quota_us", "50000");
    EXPECT_EQ(processors_by_quota("5:memory:/job\n4:cpu,cpuacct:/job\n", root.path), 1);
}

}  // namespace
}  // namespace mgplan::allowed_processors_test
