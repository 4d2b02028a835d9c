#pragma once
// Balances the stages of one layout by the simulator's seconds and bytes, and checks the result by event simulation.

#include <string>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Result of balancing a layout's stages.
struct BalancedLayout {
    Layout layout;              ///< with the balanced split, or unchanged
    double seconds_before = 0;  ///< iteration with the original split, by event simulation
    double seconds = 0;         ///< iteration of `layout`; never more, unless the original split does not fit
    bool fitted_before = true;  ///< true if the original split fits in memory
    std::string why_not;        ///< one line; empty: the split is a new one

    [[nodiscard]] double gain() const { return seconds > 0 ? seconds_before / seconds - 1 : 0; }
};

/// Balances the stages of a layout under the workload's memory limit (planner/stage_balance.hpp). Keeps the original split if it fits and
/// is not slower.
[[nodiscard]] BalancedLayout balance_layout(simulator::CostModel& model, const Workload& workload, const Layout& layout);

}  // namespace mgplan::planner
