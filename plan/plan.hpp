#pragma once
// A plan: one versioned JSON file holding everything needed to simulate, run, launch or export a layout.

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/json/layout_json.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/model/routing_skew.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"
#include "plan/workload.hpp"

namespace mgplan {

/// Version of the file format; a reader refuses any other with a message.
inline constexpr int kPlanVersion = 1;

struct Plan {
    ModelSpec model;
    ClusterSpec cluster;
    BatchSpec batch;
    TrainingSpec training;
    Layout layout;
    RoutingSkew routing;
    BatchSchedule batches{};  ///< of a Megatron-LM command: how the batch grows, and how long training goes on; `batch` is the last
};

[[nodiscard]] bool operator==(const Plan& a, const Plan& b);

/// The plan's job on `cluster`, all of its memory allowed. The layout is chosen, so nothing confines tp and ep.
[[nodiscard]] Workload workload_of(const Plan& plan, const ClusterSpec& cluster);
/// The same on the plan's own cluster.
[[nodiscard]] Workload workload_of(const Plan& plan);

/// {"mgplan_plan": version, "model", "cluster", "batch", "training", "layout"}, "routing_skew" where it is not the default, and
/// "batch_schedule" where one is stated; integers stay integers.
[[nodiscard]] nlohmann::ordered_json plan_to_json(const Plan& plan);

/// Reads what plan_to_json wrote; plan_from_json(plan_to_json(p)) == p. Throws ConfigError with all problems: wrong
/// version, missing, unknown or ill-typed fields, sizes that contradict each other. Rules between model and layout are
/// checked by planner/constraints.
[[nodiscard]] Plan plan_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
