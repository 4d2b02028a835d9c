#include "plan/graphs/graph_slots.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

std::int64_t layers_in(const GraphedChunk& chunk) {
    std::int64_t layers = 0;
    for (const LayerRun& run : chunk) layers += run.layers;
    return layers;
}

/// The shapes of all chunks, ascending: shape -> position.
std::vector<std::int32_t> shapes_of(std::span<const GraphedChunk> chunks) {
    std::set<std::int32_t> shapes;
    for (const GraphedChunk& chunk : chunks) {
        for (const LayerRun& run : chunk) {
            if (run.layers > 0) shapes.insert(run.shape);
        }
    }
    return {shapes.begin(), shapes.end()};
}

std::size_t position_of(const std::vector<std::int32_t>& shapes, std::int32_t shape) {
    return static_cast<std::size_t>(std::lower_bound(shapes.begin(), shapes.end(), shape) - shapes.begin());
}

/// Layers of each shape in a chunk.
std::vector<std::int64_t> by_shape(const GraphedChunk& chunk, const std::vector<std::int32_t>& shapes) {
    std::vector<std::int64_t> layers(shapes.size(), 0);
    for (const LayerRun& run : chunk) {
        if (run.layers > 0) layers[position_of(shapes, run.shape)] += run.layers;
    }
    return layers;
}

/// For each chunk the number of its pool.
std::vector<std::size_t> pools_of(std::span<const GraphedChunk> chunks) {
    std::vector<std::vector<std::int32_t>> sets;
    std::vector<std::size_t> pools(chunks.size(), 0);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        auto shapes = shapes_of(chunks.subspan(c, 1));
        if (shapes.empty()) continue;
        const auto found = std::find(sets.begin(), sets.end(), shapes);
        pools[c] = static_cast<std::size_t>(found - sets.begin());
        if (found == sets.end()) sets.push_back(std::move(shapes));
    }
    return pools;
}

void count_megatron(const Schedule& schedule, const RankSchedule& rank, std::span<const GraphedChunk> chunks, GraphCounts& counts) {
    const std::vector<std::int32_t> shapes = shapes_of(chunks);
    std::vector<std::vector<std::int64_t>> layers;
    for (const GraphedChunk& chunk : chunks) layers.push_back(by_shape(chunk, shapes));
    // Without a pipeline one microbatch's graphs serve all.
    const std::int64_t captured = schedule.pp() == 1 ? 1 : schedule.microbatches();
    for (const GraphedChunk& chunk : chunks) counts.forward_graphs += captured * layers_in(chunk);
    counts.backward_graphs = counts.forward_graphs;
    // A pool grows only when it is empty: it ends with as many buffers as were taken at once.
    std::vector<std::int64_t> live(shapes.size(), 0);
    std::vector<std::int64_t> peak(shapes.size(), 0);
    for (const PipelineOp& op : rank.ops) {
        const auto& taken = layers[static_cast<std::size_t>(op.chunk)];
        for (std::size_t s = 0; s < shapes.size(); ++s) {
            live[s] += op.pass == Pass::forward ? taken[s] : -taken[s];
            peak[s] = std::max(peak[s], live[s]);
        }
    }
    for (const std::int64_t buffers : peak) counts.static_buffers += buffers;
    counts.slots = rank.peak_live;
}

void count_slots(const RankSchedule& rank, std::span<const GraphedChunk> chunks, GraphCounts& counts) {
    const SlotPlan plan = plan_slots(rank, chunks);
    const std::vector<std::int32_t> shapes = shapes_of(chunks);
    std::vector<std::int64_t> held(static_cast<std::size_t>(plan.slots) * shapes.size(), 0);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const auto layers = by_shape(chunks[c], shapes);
        counts.forward_graphs += static_cast<std::int64_t>(plan.pairs[c].size()) * layers_in(chunks[c]);
        for (const std::int32_t slot : plan.pairs[c]) {
            for (std::size_t s = 0; s < shapes.size(); ++s) {
                auto& most = held[static_cast<std::size_t>(slot) * shapes.size() + s];
                most = std::max(most, layers[s]);
            }
        }
    }
    counts.backward_graphs = counts.forward_graphs;
    for (const std::int64_t buffers : held) counts.static_buffers += buffers;
    counts.slots = plan.slots;
}

}  // namespace

SlotPlan plan_slots(const RankSchedule& rank, std::span<const GraphedChunk> chunks) {
    const std::vector<std::size_t> pools = pools_of(chunks);
    std::vector<std::deque<std::int32_t>> free(chunks.size());                           // by pool, longest free first
    std::vector<std::deque<std::pair<std::int32_t, std::int32_t>>> live(chunks.size());  // by chunk: (microbatch, slot)
    SlotPlan plan;
    plan.slot.reserve(rank.ops.size());
    plan.pairs.resize(chunks.size());
    for (const PipelineOp& op : rank.ops) {
        MGPLAN_ASSERT(op.pass == Pass::forward || op.pass == Pass::backward, "CUDA graphs hold undivided backwards");
        const auto chunk = static_cast<std::size_t>(op.chunk);
        MGPLAN_ASSERT(chunk < chunks.size(), "one list of layers for each model chunk of the schedule");
        auto& pool = free[pools[chunk]];
        std::int32_t slot = 0;
        if (op.pass == Pass::forward) {
            if (pool.empty()) pool.push_back(static_cast<std::int32_t>(plan.slots++));
            slot = pool.front();
            pool.pop_front();
            live[chunk].emplace_back(op.microbatch, slot);
            plan.pairs[chunk].push_back(slot);
        } else {
            // A chunk's backwards come in the order of its forwards in every schedule there is; others are searched.
            auto& waiting = live[chunk];
            const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const auto& pair) { return pair.first == op.microbatch; });
            MGPLAN_ASSERT(found != waiting.end(), "a backward behind its forward");
            slot = found->second;
            waiting.erase(found);
            pool.push_back(slot);
        }
        plan.slot.push_back(slot);
    }
    for (auto& slots : plan.pairs) {
        std::sort(slots.begin(), slots.end());
        slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    }
    return plan;
}

GraphCounts count_graphs(const Schedule& schedule, int pp_rank, std::span<const GraphedChunk> chunks, GraphPolicy policy) {
    MGPLAN_ASSERT(!schedule.forward_only(), "a schedule with backwards");
    MGPLAN_ASSERT(chunks.size() == static_cast<std::size_t>(schedule.vpp()), "one list of layers for each model chunk of the schedule");
    const RankSchedule rank = schedule.rank(pp_rank);
    GraphCounts counts;
    counts.rank = pp_rank;
    counts.peak_live_chunks = rank.peak_live;
    if (policy == GraphPolicy::megatron)
        count_megatron(schedule, rank, chunks, counts);
    else
        count_slots(rank, chunks, counts);
    return counts;
}

}  // namespace mgplan
