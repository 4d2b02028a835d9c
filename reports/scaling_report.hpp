#pragma once
// How a model scales over worlds, for people and programs: days, GPU-hours and cost of a run on each, the layouts that are the
// fastest in their memory, and what a change to the job would bring.

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_spec.hpp"
#include "planner/scaling.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// The best layout of a world, or of a job that was changed.
struct ScaledPlan {
    std::int64_t world = 1;
    BatchSpec batch;
    Layout layout;
    simulator::Prediction prediction;
};

/// One change to a world's job, searched anew.
struct ScalingChange {
    std::string kind;                ///< for programs: one_more_node, longer_sequence, larger_batch or smaller_batch
    std::string text;                ///< for people: "one more node, 72 GPUs"
    std::optional<ScaledPlan> plan;  ///< nothing: not possible
    std::string why_not;             ///< one line then
};

struct ScaledWorld {
    std::int64_t world = 1;
    std::optional<ScaledPlan> best;
    std::string why_not;  ///< one line where there is no best
    std::vector<planner::RankedLayout> pareto;
    std::vector<ScalingChange> changes;
};

struct ScalingReport {
    std::string model, cluster, precision;
    planner::TrainingGoal goal;
    std::vector<std::string> assumed;
    std::vector<ScaledWorld> worlds;

    /// The smallest world with a plan, against which efficiency is measured; null where there is none.
    [[nodiscard]] const ScaledPlan* base() const;
};

/// The array "scaling" of `mgplan plan` (docs/scaling.md).
[[nodiscard]] nlohmann::ordered_json scaling_to_json(const ScalingReport& report);

/// Three tables of at most 100 columns where layouts are short: worlds, changes, Pareto sets.
[[nodiscard]] std::string scaling_text(const ScalingReport& report);

/// One row for each world, each member of its Pareto set and each change.
[[nodiscard]] std::string scaling_csv(const ScalingReport& report);

}  // namespace mgplan::reports
