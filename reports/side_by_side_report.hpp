#pragma once
// Clusters next to each other, each with its recommended plan, as text, JSON and CSV.

#include <optional>
#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/scaling.hpp"

namespace mgplan::reports {

/// One of the jobs that are compared: the same model on some cluster.
struct SideOption {
    Workload workload;
    std::string options;  ///< words of `plan` for this job: world, cluster, precision, sequence, batch
    std::vector<std::string> assumed;
    planner::TrainingGoal goal;
    std::optional<planner::PlannedLayout> plan;  ///< the recommended one; nothing: see `why_not`
    std::string why_not;                         ///< one line if there is no plan
    std::string remedy;                          ///< the cheapest change with which the nearest layout would fit; "": none is known

    /// Days, GPU-hours and cost of a run with the plan; nothing without a plan or tokens.
    [[nodiscard]] std::optional<planner::RunCost> run_cost() const;
};

/// The options in the order in which they were given: two at least.
struct SideBySide {
    std::vector<SideOption> options;
    BatchSource batch_source = BatchSource::given;  ///< of options that state no batch of their own
};

/// A column for each option, four at most in one table of at most 100 columns.
[[nodiscard]] std::string side_by_side_text(const SideBySide& compared);

/// {"options":[…]}, described in docs/scaling.md; "plan" is an entry of "plans" of `plan`, null without a plan.
[[nodiscard]] std::string side_by_side_json(const SideBySide& compared);

/// A row for each option.
[[nodiscard]] std::string side_by_side_csv(const SideBySide& compared);

}  // namespace mgplan::reports
