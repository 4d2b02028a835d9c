#pragma once
// Memory of layouts with their allocators replayed, which takes up to a tenth of a second each: every layout's once.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "plan/layout/layout.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

class ReplayedMemories {
public:
    /// `model` must outlive it.
    explicit ReplayedMemories(simulator::CostModel& model) : model_(model) {}

    /// CostModel::replayed_memory(). Valid as long as this.
    [[nodiscard]] const simulator::MemoryPrediction& of(const Layout& layout);
    /// Whether its deciding bytes exceed `limit`, which often needs no more than one of the stages that of() replays.
    [[nodiscard]] bool exceeds(const Layout& layout, std::int64_t limit);

    /// Whether what waits on the host fits its memory (simulator::MemoryPrediction::host_fits).
    [[nodiscard]] bool host_fits(const Layout& layout);

private:
    struct Known {
        Layout layout;
        std::int64_t exceeded = -1;  ///< bytes that it takes more than
        std::optional<simulator::MemoryPrediction> memory = {};
    };
    [[nodiscard]] Known& known(const Layout& layout);

    simulator::CostModel& model_;
    std::unordered_multimap<std::size_t, Known> known_;  ///< by hash
};

}  // namespace mgplan::planner
