#pragma once
// `mgplan rl --role ROLE=MODEL,KEY=VALUE…`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/text/errors.hpp"
#include "planner/rl/rl_plan.hpp"

namespace mgplan::cli {

/// A --role as given. Values left out are those of the command, or chosen.
struct RoleOption {
    planner::RlRole role{};
    std::optional<std::string> model, precision;
    bool absent = false;  ///< reference=none
    bool shared = false;
    std::optional<std::int64_t> gpus;
    std::optional<std::int64_t> tp, cp, ep, etp, pp, vpp, micro_batch, dp;
    planner::RlOffload offload = planner::RlOffload::automatic;
    std::optional<Recompute> recompute;
    // Rollout alone:
    simulator::RolloutEngine engine = simulator::RolloutEngine::vllm;
    simulator::EngineGraphs graphs = simulator::EngineGraphs::counted;
    simulator::EngineSampler sampler = simulator::EngineSampler::selects;
    std::optional<double> utilization;
    std::optional<std::int64_t> cache_bytes, batched_tokens, sequences;
    bool fp8_cache = false, keeps_weights = false, schedules_ahead = true;
};

/// Reads all of them; problems are added.
[[nodiscard]] std::vector<RoleOption> read_roles(const std::vector<std::string>& given, Problems& problems);

}  // namespace mgplan::cli
