#include "runtime/training_run/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace mgplan::runtime {

double learning_rate(const LearningRateOptions& options, std::int64_t updates) {
    if (options.warmup_steps > 0 && updates <= options.warmup_steps)
        return options.maximum * static_cast<double>(updates) / static_cast<double>(options.warmup_steps);
    if (options.decay == LearningRateDecay::constant) return options.maximum;
    if (updates > options.decay_steps) return options.minimum;
    const double done =
        static_cast<double>(updates - options.warmup_steps) / static_cast<double>(options.decay_steps - options.warmup_steps);
    const double left = options.decay == LearningRateDecay::linear ? 1 - done : (std::cos(std::numbers::pi * done) + 1) / 2;
    return options.minimum + left * (options.maximum - options.minimum);
}

}  // namespace mgplan::runtime
