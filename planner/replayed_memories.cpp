#include "planner/replayed_memories.hpp"

#include "plan/layout/layout_switches.hpp"
#include "planner/family_set.hpp"

namespace mgplan::planner {
namespace {

Layout without_overlaps(const Layout& layout) {
    Layout plain = layout;
    if (!layout.switches || !(layout.switches->overlap_tp || layout.switches->overlap_moe)) return plain;
    LayoutSwitches others = *layout.switches;
    others.overlap_tp = others.overlap_moe = false;
    plain.switches = others == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(others);
    return plain;
}

}  // namespace

const simulator::MemoryPrediction& ReplayedMemories::of(const Layout& asked) {
    // Overlaps that are switched on take no memory.
    const Layout layout = without_overlaps(asked);
    const std::size_t hash = family_hash(layout);
    const auto [first, last] = known_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        if (entry->second.first == layout) return entry->second.second;
    }
    return known_.emplace(hash, std::pair(layout, model_.replayed_memory(layout)))->second.second;
}

}  // namespace mgplan::planner
