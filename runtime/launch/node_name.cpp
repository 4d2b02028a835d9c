#include "runtime/launch/node_name.hpp"

#include <unistd.h>

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

}  // namespace mgplan::runtime
