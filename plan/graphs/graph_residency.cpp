#include "plan/graphs/graph_residency.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

constexpr std::int64_t kMostEntries = std::int64_t{1} << 22;

/// The same request with fewer microbatches where possible: with the same remainder, and enough to fill and drain the pipeline.
ScheduleRequest shortened(ScheduleRequest request, GraphPolicy policy) {
    const std::int64_t group = request.group_size.value_or(request.pp);
    // The warm-up takes at most 2·pp + (vpp - 1)·group of the group·vpp forwards of a group; in between every group has the
    // same chunks alive at the same places.
    const std::int64_t least = group * (2 * request.pp / (group * request.vpp) + 6);
    // A chunk's slot changes from group to group.
    const std::int64_t most = policy == GraphPolicy::slots ? kMostEntries / (std::int64_t{2} * request.pp * request.vpp) : 0;
    const std::int64_t wanted = std::max(most, least);
    if (request.microbatches > wanted) request.microbatches -= (request.microbatches - wanted + group - 1) / group * group;
    return request;
}

}  // namespace

GraphResidency::GraphResidency(const ScheduleRequest& request, int pp_rank, GraphPolicy policy) : policy_(policy) {
    const auto chunks = static_cast<std::size_t>(request.vpp);
    const auto alive = live_at_peak(request.pp, request.vpp, request.microbatches, request.group_size.value_or(request.pp), pp_rank);
    peak_live_ = std::accumulate(alive.begin(), alive.end(), std::int64_t{0});
    const bool slots = policy == GraphPolicy::slots;
    // Without a pipeline one microbatch's graphs serve all.
    copies_.assign(chunks, request.pp == 1 ? 1 : request.microbatches);
    if (chunks == 1) {
        if (slots) copies_.front() = peak_live_;
        moments_.push_back({{slots ? 1 : peak_live_}, slots ? peak_live_ : 1});
        return;
    }
    const RankSchedule rank = Schedule(shortened(request, policy)).rank(pp_rank);
    std::vector<Moment> found;
    if (slots) {
        const SlotPlan plan = plan_slots(rank, std::vector<GraphedChunk>(chunks, GraphedChunk{{0, 1}}));
        found.resize(static_cast<std::size_t>(plan.slots), {std::vector<std::int64_t>(chunks, 0), 1});
        for (std::size_t c = 0; c < chunks; ++c) {
            copies_[c] = std::ssize(plan.pairs[c]);
            for (const std::int32_t slot : plan.pairs[c]) found[static_cast<std::size_t>(slot)].weight[c] = 1;
        }
    } else {
        std::vector<std::int64_t> live(chunks, 0);
        for (const PipelineOp& op : rank.ops) {
            const bool forward = op.pass == Pass::forward;
            live[static_cast<std::size_t>(op.chunk)] += forward ? 1 : -1;
            if (forward && (found.empty() || found.back().weight != live)) found.push_back({live, 1});
        }
    }
    std::sort(found.begin(), found.end());
    for (Moment& moment : found) {
        if (!moments_.empty() && moments_.back().weight == moment.weight)
            moments_.back().times += 1;
        else
            moments_.push_back(std::move(moment));
    }
}

const GraphResidency::Alike& GraphResidency::alike(std::span<const std::uint8_t> group, std::size_t groups) const {
    const std::scoped_lock lock(mutex_);
    for (const Alike& known : alike_) {
        if (std::equal(group.begin(), group.end(), known.group.begin(), known.group.end())) return known;
    }
    Alike& added = alike_.emplace_back(Alike{{group.begin(), group.end()}, groups, {}});
    const auto width = static_cast<std::ptrdiff_t>(groups);
    std::vector<std::int64_t>& table = added.alive;
    std::vector<std::int64_t> sums;
    const auto no_more = [&](auto a, auto b) { return std::equal(a, a + width, b, [](std::int64_t x, std::int64_t y) { return x <= y; }); };
    for (const Moment& moment : moments_) {
        sums.assign(groups, 0);
        for (std::size_t c = 0; c < group.size(); ++c) sums[group[c]] += moment.weight[c];
        bool needless = false;
        for (auto known = table.begin(); known != table.end() && !needless;) {
            needless = no_more(sums.begin(), known);
            known = !needless && no_more(known, sums.begin()) ? table.erase(known, known + width) : known + width;
        }
        if (!needless) table.insert(table.end(), sums.begin(), sums.end());
    }
    return added;
}

std::int64_t GraphResidency::held(std::span<const std::int64_t> per_chunk) const {
    MGPLAN_ASSERT(per_chunk.size() == copies_.size(), "one amount for each chunk");
    std::int64_t held = 0;
    if (policy_ == GraphPolicy::megatron && per_chunk.size() <= kMostGrouped) {
        std::array<std::int64_t, kMostGrouped> amounts;
        std::array<std::uint8_t, kMostGrouped> group;
        auto end = amounts.begin();
        for (std::size_t c = 0; c < per_chunk.size(); ++c) {
            const auto known = std::find(amounts.begin(), end, per_chunk[c]);
            group[c] = static_cast<std::uint8_t>(known - amounts.begin());
            if (known == end) *end++ = per_chunk[c];
        }
        const Alike& moments = alike({group.data(), per_chunk.size()}, static_cast<std::size_t>(end - amounts.begin()));
        for (auto moment = moments.alive.begin(); moment != moments.alive.end();) {
            std::int64_t here = 0;
            for (auto amount = amounts.begin(); amount != end; ++amount) here += *moment++ * *amount;
            held = std::max(held, here);
        }
        return held;
    }
    for (const Moment& moment : moments_) {
        std::int64_t here = 0;
        for (std::size_t c = 0; c < per_chunk.size(); ++c) {
            const std::int64_t amount = moment.weight[c] * per_chunk[c];
            here = policy_ == GraphPolicy::slots ? std::max(here, amount) : here + amount;
        }
        held = policy_ == GraphPolicy::slots ? held + moment.times * here : std::max(held, here);
    }
    return held;
}

}  // namespace mgplan
