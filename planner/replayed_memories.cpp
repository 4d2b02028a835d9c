#include "planner/replayed_memories.hpp"

#include <algorithm>

#include "plan/layout/layout_switches.hpp"
#include "planner/family_set.hpp"
#include "planner/run_parallel.hpp"

namespace mgplan::planner {
namespace {

/// Number of layouts among which prepare() looks for some to replay.
constexpr std::size_t kAhead = 16;

Layout without_overlaps(const Layout& layout) {
    Layout plain = layout;
    // The graph of an iteration contains the memory of overlapped launches.
    if (layout.cuda_graphs.contains(CudaGraphScope::full_iteration)) return plain;
    if (!layout.switches || !(layout.switches->overlap_tp || layout.switches->overlap_moe)) return plain;
    LayoutSwitches others = *layout.switches;
    others.overlap_tp = others.overlap_moe = false;
    plain.switches = others == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(others);
    return plain;
}

}  // namespace

ReplayedMemories::Known& ReplayedMemories::known(const Layout& asked) {
    // Overlaps take no memory except in the graph of an iteration.
    const Layout layout = without_overlaps(asked);
    const std::size_t hash = family_hash(layout);
    const auto [first, last] = known_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        if (entry->second.layout == layout) return entry->second;
    }
    return known_.emplace(hash, Known{.layout = layout})->second;
}

const simulator::MemoryPrediction& ReplayedMemories::of(const Layout& layout) {
    Known& one = known(layout);
    replay(one, std::nullopt, model_);
    return *one.memory;
}

bool ReplayedMemories::exceeds(const Layout& layout, std::int64_t limit) {
    Known& one = known(layout);
    replay(one, limit, model_);
    return !one.memory || one.memory->deciding_bytes() > limit;
}

void ReplayedMemories::replay(Known& one, std::optional<std::int64_t> limit, simulator::CostModel& model) {
    if (one.memory || (limit && one.exceeded >= *limit)) return;
    if (!limit) {
        one.memory = model.replayed_memory(one.layout);
        return;
    }
    one.memory = model.replayed_memory(one.layout, *limit);
    if (!one.memory) one.exceeded = *limit;
}

simulator::CostModel& ReplayedMemories::model_of(std::size_t thread) {
    if (thread == 0) return model_;
    while (others_.size() < thread) others_.push_back(std::make_unique<simulator::CostModel>(model_.workload(), model_));
    return *others_[thread - 1];
}

void ReplayedMemories::prepare(std::span<const RankedLayout> next, std::optional<std::int64_t> limit) {
    const auto is_known = [&](const Known& one) { return one.memory || (limit && one.exceeded >= *limit); };
    if (threads_ == 1 || next.empty() || is_known(known(next.front().layout))) return;
    struct Task {
        Known* one;
        simulator::CostModel* model;
    };
    std::vector<Task> tasks;
    std::vector<bool> busy(threads_, false);
    for (const RankedLayout& ranked : next.first(std::min(kAhead, next.size()))) {
        if (tasks.size() == threads_) break;
        const Layout& layout = ranked.layout;
        Known& one = known(layout);
        if (layout.engine != Engine::megatron || is_known(one)) continue;
        const ParallelSizes& sizes = layout.sizes;
        const auto free = static_cast<std::size_t>(std::ranges::find(busy, false) - busy.begin());
        const std::size_t thread =
            thread_of_.try_emplace({sizes.tp, sizes.cp, sizes.ep, sizes.etp, sizes.pp, layout.vpp, layout.micro_batch}, free).first->second;
        if (busy[thread]) continue;
        busy[thread] = true;
        tasks.push_back({&one, &model_of(thread)});
    }
    if (tasks.size() == 1) replay(*tasks.front().one, limit, *tasks.front().model);
    if (tasks.size() < 2) return;
    run_parallel(tasks.size(), tasks.size(), [&](std::size_t task, std::size_t) { replay(*tasks[task].one, limit, *tasks[task].model); },
                 {});
}

bool ReplayedMemories::host_fits(const Layout& layout) {
    const Workload& workload = model_.workload();
    return workload.cluster.host_memory_bytes == 0 || !workload.training.offload.active() ||
           model_.memory(layout).host_fits();  // needs no replay
}

}  // namespace mgplan::planner
