#include "planner/replayed_memories.hpp"

#include "planner/family_set.hpp"

namespace mgplan::planner {

const simulator::MemoryPrediction& ReplayedMemories::of(const Layout& layout) {
    const std::size_t hash = family_hash(layout);
    const auto [first, last] = known_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        if (entry->second.first == layout) return entry->second.second;
    }
    return known_.emplace(hash, std::pair(layout, model_.replayed_memory(layout)))->second.second;
}

}  // namespace mgplan::planner
