#pragma once
// Predicted change of a job's step if one assumption of the prediction, or one switch of the job, were different.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::planner {

/// The side of the job that a change belongs to.
enum class ChangeKind : std::uint8_t {
    assumption,    ///< of the prediction on machine or data: host, routing, network, a slow GPU
    not_effective  ///< a switch that the job has on and that may not act
};

struct WhatIf {
    std::string name;    ///< machine-readable: "host", "network", "grad-reduce"
    std::string change;  ///< "the host launches kernels half as fast"
    std::string lever;   ///< flag or check that changes it
    ChangeKind kind = ChangeKind::assumption;
    double seconds = 0;  ///< of the step with the change minus those without; above 0: slower
};

/// A switch that the job has off, and the seconds that it would save.
struct UnusedSwitch {
    std::string name, lever;
    double saved_seconds = 0;
};

/// Changes that make the step slower or faster by at least a two-hundredth, the largest first: each alone, everything else as it is. The
/// layout must be valid for the workload and have at most simulator::kMostReplayedPasses passes for a slow GPU to be among them.
[[nodiscard]] std::vector<WhatIf> what_ifs(const Workload& work, const Layout& layout);
/// Switches of the same kind that are off, legal with this layout, and would save at least a two-hundredth of the step; the largest first.
[[nodiscard]] std::vector<UnusedSwitch> unused_switches(const Workload& work, const Layout& layout);

}  // namespace mgplan::planner
