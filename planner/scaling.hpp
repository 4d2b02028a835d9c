#pragma once
// What a training run takes in days and money, how well a model scales from one world to another, and which layouts are the
// fastest in the memory that they need. Plain values and arithmetic.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/training/batch_spec.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// What is to be trained, and what a GPU costs; both may be unknown.
struct TrainingGoal {
    std::optional<double> tokens;          ///< above zero
    std::optional<double> gpu_hour_price;  ///< of one GPU for an hour, in any currency; zero or more
};

/// A run over all tokens of a goal, without restarts, evaluations and checkpoints.
struct RunCost {
    double steps = 0;  ///< whole iterations: the last one may hold fewer new tokens
    double days = 0;
    double gpu_hours = 0;
    std::optional<double> cost;  ///< in the price's currency
};

/// Nothing without tokens in the goal. `iteration_seconds` above zero.
[[nodiscard]] std::optional<RunCost> run_cost(const TrainingGoal& goal, const BatchSpec& batch, std::int64_t world,
                                              double iteration_seconds);

/// Tokens a second of all GPUs together.
[[nodiscard]] double tokens_per_second(const BatchSpec& batch, double iteration_seconds);

/// Tokens a second and GPU over those of another world: 1 where a larger world is faster in proportion (strong scaling where the
/// batch stays).
[[nodiscard]] double scaling_efficiency(double tokens_per_second, std::int64_t world, double base_tokens_per_second,
                                        std::int64_t base_world);

/// Layouts of which each is the fastest of all that need no more memory than it: fastest first, so that bytes fall from one to the
/// next. It does not depend on the order of offers: of equals the one that ranks_before() (search.hpp) puts first stays.
class ParetoSet {
public:
    void offer(const RankedLayout& candidate);
    /// The same where a layout need not be copied unless it stays.
    void offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes);
    [[nodiscard]] const std::vector<RankedLayout>& layouts() const { return layouts_; }

private:
    std::vector<RankedLayout> layouts_;
};

}  // namespace mgplan::planner
