#include "plan/allowed_processors.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

#include "plan/text/text.hpp"

namespace mgplan {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
    std::ifstream file(path);
    std::string text(std::istreambuf_iterator<char>(file), {});
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

/// Processors that a quota of microseconds per period is; nothing without a quota.
std::optional<int> processors_of(const std::string& quota, const std::string& period) {
    const auto used = parse_integer(quota), whole = parse_integer(period);
    if (!used || !whole || *used <= 0 || *whole <= 0) return std::nullopt;
    return static_cast<int>(std::min<std::int64_t>((*used + *whole - 1) / *whole, 1 << 20));
}

/// Quota of one group, of either version.
std::optional<int> quota_of(const fs::path& group) {
    const auto words = split(content_of(group / "cpu.max"), ' ');
    if (words.size() == 2) return processors_of(words[0], words[1]);
    return processors_of(content_of(group / "cpu.cfs_quota_us"), content_of(group / "cpu.cfs_period_us"));
}

}  // namespace

int processors_by_quota(std::string_view own, const fs::path& root) {
    int least = 0;
    for (const std::string& line : split(own, '\n')) {
        // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && controllers != "cpu" && !controllers.starts_with("cpu,")) continue;
        const fs::path mounted = controllers.empty() ? root : root / "cpu";
        fs::path group = mounted / fs::path(line.substr(second + 1)).relative_path();
        // Inside a container the path may be that of the host: then only the mounted root is there.
        for (;; group = group.parent_path()) {
            if (const auto quota = quota_of(group)) least = least == 0 ? *quota : std::min(least, *quota);
            if (group == mounted || group == group.parent_path()) break;
        }
    }
    return least;
}

int allowed_processors() {
    int allowed = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
#ifdef __linux__
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (::sched_getaffinity(0, sizeof mask, &mask) == 0) allowed = std::max(1, CPU_COUNT(&mask));
    if (const int quota = processors_by_quota(content_of("/proc/self/cgroup"), "/sys/fs/cgroup"); quota > 0)
        allowed = std::min(allowed, quota);
#endif
    return allowed;
}

}  // namespace mgplan
