#pragma once
// The learning rate of each step.

#include <cstdint>

namespace mgplan::runtime {

enum class LearningRateDecay : std::uint8_t { constant, linear, cosine };

struct LearningRateOptions {
    double maximum = 1e-3;
    double minimum = 0;
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 1;  ///< the step, warm-up included, at which the minimum is reached; more than warmup_steps
    LearningRateDecay decay = LearningRateDecay::constant;
};

/// Returns the rate of the update after `updates` earlier ones: warm-up runs linearly from 0, so that with warm-up the first
/// update has the rate 0; then constant, or from the maximum to the minimum linearly or along half a cosine. Formulas of
/// Megatron-LM's OptimizerParamScheduler.get_lr (megatron/core/optimizer_param_scheduler.py) with init_lr = 0.
[[nodiscard]] double learning_rate(const LearningRateOptions& options, std::int64_t updates);

}  // namespace mgplan::runtime
