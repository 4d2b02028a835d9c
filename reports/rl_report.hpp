#pragma once
// A planned step of reinforcement learning as text, JSON and CSV.

#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "planner/rl/rl_plan.hpp"

namespace mgplan::reports {

struct RlReport {
    Workload workload;  ///< the actor's
    planner::RlPlan plan;
    std::vector<std::string> assumed;
};

/// A row for each phase, then what is left for the cache, what waits in host memory, and the best split of the GPUs.
[[nodiscard]] std::string rl_text(const RlReport& report);

/// {"phases":[{"name","seconds","peak_bytes","own_gpus"}],"roles":{…},"kv_blocks","concurrency",…}: bytes of the fullest GPU, of host
/// memory of a node; null for a step that does not fit.
[[nodiscard]] std::string rl_json(const RlReport& report);

/// A row for each phase.
[[nodiscard]] std::string rl_csv(const RlReport& report);

}  // namespace mgplan::reports
