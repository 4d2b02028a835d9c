#include "simulator/memory/live_states.hpp"

#include <algorithm>
#include <numeric>

namespace mgplan::simulator {
namespace {

bool at_least(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), [](std::int32_t x, std::int32_t y) { return x >= y; });
}

}  // namespace

std::int64_t enough_microbatches(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size) {
    const std::int64_t group = vpp > 1 ? std::max<std::int64_t>(pp, group_size) : pp;
    const std::int64_t enough = 4 * group;
    return microbatches <= enough ? microbatches : enough + (microbatches - enough) % group;
}

LiveStates live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = enough_microbatches(pp, vpp, microbatches, group_size);
    if (vpp > 1) request.group_size = std::min(group_size, request.microbatches);
    const RankSchedule schedule = Schedule(request).rank(pp_rank);
    const auto chunks = static_cast<std::size_t>(vpp);
    std::vector<std::vector<std::vector<std::int32_t>>> fullest(2 * chunks);  // by op: backwards behind the forwards
    std::vector<std::int32_t> live(chunks, 0);
    for (const std::int16_t op : schedule.order) {
        const auto chunk = static_cast<std::size_t>(op > 0 ? op - 1 : -op - 1);
        auto& states = fullest[op > 0 ? chunk : chunks + chunk];
        const bool covered = std::any_of(states.rbegin(), states.rend(), [&](const auto& state) { return at_least(state, live); });
        if (!covered) {
            std::erase_if(states, [&](const auto& state) { return at_least(live, state); });
            states.push_back(live);
        }
        live[chunk] += op > 0 ? 1 : -1;
    }
    LiveStates result;
    for (std::size_t i = 0; i < fullest.size(); ++i) {
        const bool forward = i < chunks;
        const int op = forward ? static_cast<int>(i) + 1 : -static_cast<int>(i - chunks + 1);
        std::int64_t& most = forward ? result.most_before_forward : result.most_before_backward;
        for (auto& state : fullest[i]) {
            most = std::max(most, std::accumulate(state.begin(), state.end(), std::int64_t{0}));
            result.states.push_back({op, std::move(state)});
        }
    }
    return result;
}

}  // namespace mgplan::simulator
