#pragma once
// Cache of layouts' memory with their allocators replayed; each replay takes up to a tenth of a second.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/layout/layout.hpp"
#include "planner/search_result.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

class ReplayedMemories {
public:
    /// `model` must outlive it. `threads`: of prepare(); at least 1.
    explicit ReplayedMemories(simulator::CostModel& model, std::size_t threads = 1) : model_(model), threads_(threads) {}

    /// CostModel::replayed_memory(). Valid as long as this object.
    [[nodiscard]] const simulator::MemoryPrediction& of(const Layout& layout);
    /// True if its deciding bytes exceed `limit`; often replays only one of the stages that of() replays.
    [[nodiscard]] bool exceeds(const Layout& layout, std::int64_t limit);

    /// If the first of `next` would be replayed now, replays it and some of the others side by side: what the calls for them will need.
    /// `limit`: exceeds() with it follows; nothing: of().
    void prepare(std::span<const RankedLayout> next, std::optional<std::int64_t> limit);

    /// True if its offloaded data fits the host memory (simulator::MemoryPrediction::host_fits).
    [[nodiscard]] bool host_fits(const Layout& layout);

private:
    struct Known {
        Layout layout;
        std::int64_t exceeded = -1;  ///< a number of bytes that it is known to exceed
        std::optional<simulator::MemoryPrediction> memory = {};
    };
    [[nodiscard]] Known& known(const Layout& layout);
    static void replay(Known& one, std::optional<std::int64_t> limit, simulator::CostModel& model);
    /// The model of a thread, from 0.
    [[nodiscard]] simulator::CostModel& model_of(std::size_t thread);

    simulator::CostModel& model_;
    std::size_t threads_;
    std::vector<std::unique_ptr<simulator::CostModel>> others_;  ///< of threads from 1 on
    /// Layouts that agree in these fields often allocate the same, which a thread's own model replays once: the thread, by fields.
    std::map<std::vector<std::int64_t>, std::size_t> thread_of_;
    std::unordered_multimap<std::size_t, Known> known_;  ///< by hash
};

}  // namespace mgplan::planner
