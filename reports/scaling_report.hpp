#pragma once
// Scaling of a model over worlds, as text and JSON: days, GPU-hours and cost of a run on each, the fastest layouts for each memory size,
// and the effect of a change to the job.

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_spec.hpp"
#include "planner/scaling.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// The best layout of a world, or of a changed job.
struct ScaledPlan {
    std::int64_t world = 1;
    BatchSpec batch;
    Layout layout;
    simulator::Prediction prediction;
};

/// One change to a world's job, with its own search.
struct ScalingChange {
    std::string kind;                ///< in JSON: one_more_node, longer_sequence, larger_batch or smaller_batch
    std::string text;                ///< in text: "one more node, 72 GPUs"
    std::optional<ScaledPlan> plan;  ///< nothing: not possible
    std::string why_not;             ///< one line if not possible
};

struct ScaledWorld {
    std::int64_t world = 1;
    std::optional<ScaledPlan> best;
    std::string why_not;  ///< one line if there is no best
    std::vector<planner::RankedLayout> pareto;
    std::vector<ScalingChange> changes;
};

struct ScalingReport {
    std::string model, cluster, precision;
    planner::TrainingGoal goal;
    std::vector<std::string> assumed;
    std::vector<ScaledWorld> worlds;

    /// The smallest world with a plan, the reference of efficiency; null if there is none.
    [[nodiscard]] const ScaledPlan* base() const;
};

/// The array "scaling" of `mgplan plan` (docs/scaling.md).
[[nodiscard]] nlohmann::ordered_json scaling_to_json(const ScalingReport& report);

/// Three tables, at most 100 columns wide if layouts are short: worlds, changes, Pareto sets.
[[nodiscard]] std::string scaling_text(const ScalingReport& report);

/// One row for each world, each member of its Pareto set and each change.
[[nodiscard]] std::string scaling_csv(const ScalingReport& report);

}  // namespace mgplan::reports
