#include "simulator/memory/live_states.hpp"

#include <algorithm>

namespace mgplan::simulator {
namespace {

bool at_least(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), [](std::int32_t x, std::int32_t y) { return x >= y; });
}

/// As many microbatches as fill the pipeline, run it through whole groups and drain it, with a last group as long as asked for.
std::int64_t enough_microbatches(int pp, std::int64_t microbatches, std::int64_t group_size) {
    const std::int64_t group = std::max<std::int64_t>(pp, group_size);
    const std::int64_t enough = 4 * group;
    return microbatches <= enough ? microbatches : enough + (microbatches - enough) % group;
}

}  // namespace

std::vector<LiveState> live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = enough_microbatches(pp, microbatches, vpp > 1 ? group_size : pp);
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
    std::vector<LiveState> result;
    for (std::size_t i = 0; i < fullest.size(); ++i) {
        const auto op = static_cast<std::int16_t>(i < chunks ? i + 1 : -static_cast<int>(i - chunks + 1));
        for (auto& state : fullest[i]) result.push_back({op, std::move(state)});
    }
    return result;
}

}  // namespace mgplan::simulator
