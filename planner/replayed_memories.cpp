#include "planner/replayed_memories.hpp"

#include "plan/layout/layout_switches.hpp"
#include "planner/family_set.hpp"

namespace mgplan::planner {
namespace {

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
    if (!one.memory) one.memory = model_.replayed_memory(one.layout);
    return *one.memory;
}

bool ReplayedMemories::exceeds(const Layout& layout, std::int64_t limit) {
    Known& one = known(layout);
    if (!one.memory) {
        if (one.exceeded >= limit) return true;
        one.memory = model_.replayed_memory(one.layout, limit);
        if (!one.memory) {
            one.exceeded = limit;
            return true;
        }
    }
    return one.memory->deciding_bytes() > limit;
}

bool ReplayedMemories::host_fits(const Layout& layout) {
    const Workload& workload = model_.workload();
    return workload.cluster.host_memory_bytes == 0 || !workload.training.offload.active() ||
           model_.memory(layout).host_fits();  // needs no replay
}

}  // namespace mgplan::planner
