#pragma once
// Cache of layouts' memory with their allocators replayed; each replay takes up to a tenth of a second.

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

    /// CostModel::replayed_memory(). Valid as long as this object.
    [[nodiscard]] const simulator::MemoryPrediction& of(const Layout& layout);
    /// True if its deciding bytes exceed `limit`; often replays only one of the stages that of() replays.
    [[nodiscard]] bool exceeds(const Layout& layout, std::int64_t limit);

    /// True if its offloaded data fits the host memory (simulator::MemoryPrediction::host_fits).
    [[nodiscard]] bool host_fits(const Layout& layout);

private:
    struct Known {
        Layout layout;
        std::int64_t exceeded = -1;  ///< a number of bytes that it is known to exceed
        std::optional<simulator::MemoryPrediction> memory = {};
    };
    [[nodiscard]] Known& known(const Layout& layout);

    simulator::CostModel& model_;
    std::unordered_multimap<std::size_t, Known> known_;  ///< by hash
};

}  // namespace mgplan::planner
