#pragma once
// Balances the stages of one layout by the simulator's seconds and bytes, and judges the outcome event by event.

#include <string>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// What became of a layout's stages.
struct BalancedLayout {
    Layout layout;              ///< with the balanced split, or as it was
    double seconds_before = 0;  ///< of an iteration, event by event, with the split that it had
    double seconds = 0;         ///< of an iteration of `layout`; never more, unless the split before does not fit
    bool fitted_before = true;  ///< whether the split that it had fits in memory
    std::string why_not;        ///< one line; empty: the split is a new one

    [[nodiscard]] double gain() const { return seconds > 0 ? seconds_before / seconds - 1 : 0; }
};

/// Balances the stages of a layout under the workload's memory limit (planner/stage_balance.hpp) and keeps its own split where
/// that fits and is as fast.
[[nodiscard]] BalancedLayout balance_layout(simulator::CostModel& model, const Workload& workload, const Layout& layout);

}  // namespace mgplan::planner
