#pragma once
// Where the stage balancer meets the cost model: a layout whose stages are balanced, judged event by event.

#include <optional>
#include <string>

#include "plan/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

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

/// One line: what it gained, or why there is nothing to gain.
[[nodiscard]] std::string balanced_text(const BalancedLayout& balanced);

}  // namespace mgplan::cli
