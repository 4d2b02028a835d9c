#pragma once
// Number of processors that the process may use.

#include <filesystem>
#include <string_view>

namespace mgplan {

/// Number of threads that can run at a time: the processors in the process's affinity mask, and no more than the CPU quota of its control
/// groups, rounded up. At least 1. Without either (other systems) std::thread::hardware_concurrency().
[[nodiscard]] int allowed_processors();

/// The smallest quota of a control group and those above it, in processors, rounded up; 0: none. `own`: content of /proc/self/cgroup.
/// `root`: the folder where control groups are mounted. Version 2 has cpu.max there, version 1 cpu.cfs_quota_us below cpu/.
[[nodiscard]] int processors_by_quota(std::string_view own, const std::filesystem::path& root);

}  // namespace mgplan
