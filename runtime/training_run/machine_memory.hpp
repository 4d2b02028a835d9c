#pragma once
// The memory that this process and its children may use.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace mgplan::runtime {

struct MachineMemory {
    std::int64_t bytes = 0;
    std::string text;  ///< source of the number: "this machine has", "this process's control group allows (memory.max)"
};

/// The smaller one of this machine's memory and what its control groups allow.
[[nodiscard]] MachineMemory machine_memory();

/// The smallest limit of a process's control group and those above it, in bytes; nothing where there is none. `groups`: the
/// text of /proc/PID/cgroup; `root`: where the file systems of control groups are mounted, /sys/fs/cgroup. Version 2 has
/// memory.max in each folder, version 1 memory.limit_in_bytes below memory/ (docs.kernel.org, admin-guide/cgroup-v2.rst and
/// cgroup-v1/memory.rst).
[[nodiscard]] std::optional<std::int64_t> control_group_limit(const std::string& groups, const std::filesystem::path& root);

}  // namespace mgplan::runtime
