#include "runtime/training_run/machine_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "plan/text/text.hpp"

namespace mgplan::runtime {
namespace {

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the number in a file's first line; nothing if it is "max" or cannot be read.
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
    std::string text = text_of(path);
    text.resize(std::min(text.find('\n'), text.size()));
    return parse_integer(text);
}

}  // namespace

std::optional<std::int64_t> control_group_limit(const std::string& groups, const std::filesystem::path& root) {
    std::optional<std::int64_t> least;
    const auto look = [&](const std::filesystem::path& top, const std::filesystem::path& group, const char* file) {
        // A container may see a path that its own mount does not show: the top is looked at all the same.
        for (std::filesystem::path at = group.relative_path();; at = at.parent_path()) {
            if (const auto limit = number_in(top / at / file)) least = std::min(least.value_or(*limit), *limit);
            if (at.empty()) return;
        }
    };
    for (const auto& line : split(groups, '\n')) {  // "0::/user.slice" or "4:memory:/docker/ab"
        const auto first = line.find(':');
        const auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::filesystem::path group = line.substr(second + 1);
        if (controllers.empty()) look(root, group, "memory.max");
        const auto names = split(controllers, ',');
        if (std::find(names.begin(), names.end(), "memory") != names.end()) look(root / "memory", group, "memory.limit_in_bytes");
    }
    return least;
}

MachineMemory machine_memory() {
    MachineMemory memory{static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE)),
                         "this machine has"};
    if (const auto limit = control_group_limit(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"); limit && *limit < memory.bytes)
        memory = {*limit, "this process's control group allows (memory.max)"};
    return memory;
}

}  // namespace mgplan::runtime
