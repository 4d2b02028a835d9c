#pragma once
// How far a predicted time may be off, from what it is made of.

#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Seconds of an iteration by what they rest on.
struct TimeParts {
    double products = 0;       ///< kernels whose rates come from tables of one precision
    double fp8_products = 0;   ///< part of products under fp8
    double expert_layers = 0;  ///< part of products in layers with experts
    double host = 0;           ///< that follow the host's launches: their share where both limit
    double communication = 0;  ///< exposed
    double iteration = 0;      ///< all of it
};

/// Standard deviation over the predicted iteration. Errors inside a part are the same in every kernel, those of different
/// parts are independent: variances of the parts add up (JCGM 100, "Guide to the Expression of Uncertainty in Measurement",
/// 5.1.2), on top of what all runs share (clocks, other jobs, what a configuration does not say).
[[nodiscard]] double relative_deviation(const TimeParts& parts, const Calibration& calibration);

/// Half-width of the interval that holds four fifths of a normal distribution, in standard deviations.
inline constexpr double kFourFifths = 1.2816;

}  // namespace mgplan::simulator
