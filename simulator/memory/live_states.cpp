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

MostLive most_live(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
    const std::vector<std::int64_t> counts = live_at_peak(pp, vpp, microbatches, group_size, pp_rank);
    const std::int64_t most = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    return {most - 1, most};
}

std::vector<LiveState> live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank) {
    // Limit on the passes of all ranks together, because each rank may be requested: 64 stages of 8 chunks stay below it.
    constexpr std::int64_t kMostOps = std::int64_t{1} << 22U;
    constexpr std::size_t kMostStates = 256;  // limit per op
    const auto chunks = static_cast<std::size_t>(vpp);
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = enough_microbatches(pp, vpp, microbatches, group_size);
    const auto taken_together = [&] {
        std::vector<LiveState> result;
        const std::vector<std::int64_t> counts = live_at_peak(pp, vpp, microbatches, group_size, pp_rank);
        std::vector<std::int32_t> most(counts.begin(), counts.end());
        for (std::size_t c = 0; c < chunks; ++c) result.push_back({-static_cast<int>(c) - 1, most});
        for (std::size_t c = 0; c < chunks; ++c) {
            LiveState before{static_cast<int>(c) + 1, most};
            before.live[c] = std::max(0, before.live[c] - 1);
            result.push_back(std::move(before));
        }
        return result;
    };
    if (vpp == 1 || 2 * request.microbatches * vpp > kMostOps / pp) return taken_together();
    request.group_size = std::min(group_size, request.microbatches);
    const RankSchedule schedule = Schedule(request).rank(pp_rank);
    std::vector<std::vector<std::vector<std::int32_t>>> fullest(2 * chunks);  // by op: forwards, then backwards
    std::vector<std::int32_t> live(chunks, 0);
    for (const PipelineOp& op : schedule.ops) {
        const auto chunk = static_cast<std::size_t>(op.chunk);
        const bool forward = op.pass == Pass::forward;
        auto& states = fullest[forward ? chunk : chunks + chunk];
        const bool covered = std::any_of(states.rbegin(), states.rend(), [&](const auto& state) { return at_least(state, live); });
        if (!covered) {
            std::erase_if(states, [&](const auto& state) { return at_least(live, state); });
            states.push_back(live);
            if (states.size() > kMostStates) return taken_together();
        }
        live[chunk] += forward ? 1 : -1;
    }
    std::vector<LiveState> result;
    for (std::size_t i = 0; i < fullest.size(); ++i) {
        const int op = i < chunks ? static_cast<int>(i) + 1 : -static_cast<int>(i - chunks + 1);
        for (auto& state : fullest[i]) result.push_back({op, std::move(state)});
    }
    return result;
}

}  // namespace mgplan::simulator
