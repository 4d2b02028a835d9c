#pragma once
// Parts of a stage's memory model that depend only on the schedule, computed once for all threads of a search and all switches.

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/graphs/graph_residency.hpp"
#include "simulator/memory/live_states.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/shared_memo.hpp"

namespace mgplan::simulator {

/// Thread-safe. References are valid as long as it.
class SharedSchedules {
public:
    /// Cached live_states().
    [[nodiscard]] const std::vector<LiveState>& live(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
        return live_.of({{pp, vpp, microbatches, group_size, pp_rank}},
                        [&] { return live_states(pp, vpp, microbatches, group_size, pp_rank); });
    }

    /// Cached GraphResidency of a legal request.
    [[nodiscard]] const GraphResidency& residency(const ScheduleRequest& request, int pp_rank, GraphPolicy policy) {
        const MemoKey<6> key{
            {request.pp, request.vpp, request.microbatches, request.group_size.value_or(0), pp_rank, static_cast<std::int64_t>(policy)}};
        return *residencies_.of(key, [&] { return std::make_unique<const GraphResidency>(request, pp_rank, policy); });
    }

private:
    SharedMemo<MemoKey<5>, std::vector<LiveState>> live_;
    SharedMemo<MemoKey<6>, std::unique_ptr<const GraphResidency>> residencies_;
};

}  // namespace mgplan::simulator
