#pragma once
// Uncertainty of a predicted time, from the parts that it consists of.

#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Seconds of an iteration by the rates that they depend on.
struct TimeParts {
    double products = 0;       ///< kernels with rates from tables of one precision
    double fp8_products = 0;   ///< part of products under fp8
    double expert_layers = 0;  ///< part of products in layers with experts
    double host = 0;           ///< seconds that scale with the host's launch time
    double communication = 0;  ///< exposed
    double iteration = 0;      ///< the whole iteration
};

/// Standard deviation relative to the predicted iteration. Errors within a part are fully correlated, those of different parts independent:
/// variances of the parts add up (JCGM 100, "Guide to the Expression of Uncertainty in Measurement", 5.1.2), plus the variance between runs
/// (clocks, other jobs, settings that no configuration states).
[[nodiscard]] double relative_deviation(const TimeParts& parts, const Deviations& deviations);

/// Half-width, in standard deviations, of the interval that holds 80 % of a normal distribution.
inline constexpr double kFourFifths = 1.2816;

}  // namespace mgplan::simulator
