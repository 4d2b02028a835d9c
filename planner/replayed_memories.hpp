#pragma once
// Memory of layouts with their allocators replayed, which takes up to a tenth of a second each: every layout's once.

#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/layout/layout.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

class ReplayedMemories {
public:
    /// `model` must outlive it.
    explicit ReplayedMemories(simulator::CostModel& model) : model_(model) {}

    /// CostModel::replayed_memory(). Valid as long as this.
    [[nodiscard]] const simulator::MemoryPrediction& of(const Layout& layout);

private:
    simulator::CostModel& model_;
    std::unordered_multimap<std::size_t, std::pair<Layout, simulator::MemoryPrediction>> known_;  ///< by hash
};

}  // namespace mgplan::planner
