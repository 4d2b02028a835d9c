#pragma once
// Days and cost of a training run, scaling efficiency between two worlds, and the fastest layouts for each memory size. Plain values and
// arithmetic.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/training/batch_spec.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Tokens to train and price of a GPU; both optional.
struct TrainingGoal {
    std::optional<double> tokens;          ///< above zero
    std::optional<double> gpu_hour_price;  ///< price of one GPU for an hour, in any currency; zero or more
};

/// A run over all tokens of a goal, without restarts, evaluations and checkpoints.
struct RunCost {
    double steps = 0;  ///< whole iterations: the last one may hold fewer new tokens
    double days = 0;
    double gpu_hours = 0;
    std::optional<double> cost;  ///< in the price's currency
};

/// Nothing if the goal has no tokens. `iteration_seconds` must be above zero.
[[nodiscard]] std::optional<RunCost> run_cost(const TrainingGoal& goal, const BatchSpec& batch, std::int64_t world,
                                              double iteration_seconds);

/// Tokens per second of all GPUs together.
[[nodiscard]] double tokens_per_second(const BatchSpec& batch, double iteration_seconds);

/// Tokens per second and GPU relative to those of another world: 1 if a larger world is faster in proportion (strong scaling if the batch
/// stays the same).
[[nodiscard]] double scaling_efficiency(double tokens_per_second, std::int64_t world, double base_tokens_per_second,
                                        std::int64_t base_world);

/// Layouts each of which is the fastest of all that need no more memory: fastest first, so that bytes fall along the list. Does not depend
/// on the order of offers: of equal layouts the one that ranks_before() (search.hpp) puts first is kept.
class ParetoSet {
public:
    void offer(const RankedLayout& candidate);
    /// Offers a layout; copies it only if it is kept.
    void offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes);
    [[nodiscard]] const std::vector<RankedLayout>& layouts() const { return layouts_; }

private:
    std::vector<RankedLayout> layouts_;
};

}  // namespace mgplan::planner
