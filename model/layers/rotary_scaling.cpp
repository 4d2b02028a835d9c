#include "model/layers/rotary_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mgplan::model {
namespace {

double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

RotaryAngles rotary_angles(const Rotary& positions, std::int64_t rotated, std::int64_t max_positions) {
    RotaryAngles angles{.base = positions.base};
    const RotaryScaling& scaling = positions.scaling_values;
    const double original = static_cast<double>(scaling.original_positions > 0 ? scaling.original_positions : max_positions);
    constexpr double turn = 2 * std::numbers::pi;
    if (positions.scaling.empty()) return angles;
    angles.factor = scaling.factor;
    angles.offset = 0;
    if (positions.scaling == "llama3") {
        // (original · f / 2π - low) / (high - low)
        // A step where both are equal; as steep a ramp as yarn's is one.
        const double width = std::max(scaling.high_frequency_factor - scaling.low_frequency_factor, 0.001);
        angles.offset = -scaling.low_frequency_factor / width;
        angles.by_frequency = original / turn / width;
    } else if (positions.scaling == "yarn") {
        // The pair that turns `times` times over the original positions.
        const auto pair = [&](double times) {
            return static_cast<double>(rotated) * std::log(original / (times * turn)) / (2 * std::log(positions.base));
        };
        const double fast = pair(scaling.beta_fast), slow = pair(scaling.beta_slow);
        const double low = std::max(scaling.whole_pairs ? std::floor(fast) : fast, 0.0);
        const double high = std::min(scaling.whole_pairs ? std::ceil(slow) : slow, static_cast<double>(rotated - 1));
        const double width = high == low ? 0.001 : high - low;
        angles.offset = 1 + low / width;
        angles.by_index = -1 / width;
        angles.magnitude = scaling.mscale > 0 && scaling.mscale_all_dim > 0
                               ? yarn_magnitude(scaling.factor, scaling.mscale) / yarn_magnitude(scaling.factor, scaling.mscale_all_dim)
                               : yarn_magnitude(scaling.factor, scaling.mscale > 0 ? scaling.mscale : 1);
    }
    return angles;
}

double rotary_score_factor(const Rotary& positions) {
    const RotaryScaling& scaling = positions.scaling_values;
    if (positions.scaling != "yarn" || scaling.mscale_all_dim == 0) return 1;
    const double magnitude = yarn_magnitude(scaling.factor, scaling.mscale_all_dim);
    return magnitude * magnitude;
}

}  // namespace mgplan::model
