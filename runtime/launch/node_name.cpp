#include "runtime/launch/node_name.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace mgplan::runtime {

std::string node_name(const Environment& environment) {
    if (environment("SLURM_STEP_NUM_TASKS")) {
        if (const auto name = environment("SLURMD_NODENAME"); name && !name->empty()) return *name;
    }
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
}

std::vector<int> node_numbers(const std::vector<std::string>& names) {
    std::vector<std::string> seen;
    std::vector<int> numbers;
    for (const auto& name : names) {
        const auto found = std::find(seen.begin(), seen.end(), name);
        numbers.push_back(static_cast<int>(found - seen.begin()));
        if (found == seen.end()) seen.push_back(name);
    }
    return numbers;
}

}  // namespace mgplan::runtime
