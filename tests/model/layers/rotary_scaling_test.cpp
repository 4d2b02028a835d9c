#include "model/layers/rotary_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace mgplan::model::rotary_scaling_test {
namespace {

constexpr std::int64_t kRotated = 128;

/// The frequency that a pair turns with, as the kernels make it.
double frequency(const RotaryAngles& a, std::int64_t i) {
    const double f = std::pow(a.base, -2.0 * static_cast<double>(i) / kRotated);
    const double m = std::clamp(a.offset + a.by_index * static_cast<double>(i) + a.by_frequency * f, 0.0, 1.0);
    return f * (m + (1 - m) / a.factor);
}

constexpr std::int64_t kPositions = 131072;

Rotary scaled(const std::string& kind) {
    Rotary positions;
    positions.base = 500000;
    positions.scaling = kind;
    positions.scaling_values.factor = 8;
    positions.scaling_values.original_positions = 8192;
    return positions;
}

TEST(RotaryScaling, IsAbsentWithoutAName) {
    const RotaryAngles angles = rotary_angles(scaled(""), kRotated, kPositions);
    for (std::int64_t i = 0; i < kRotated / 2; ++i) EXPECT_EQ(frequency(angles, i), std::pow(5e5, -2.0 * static_cast<double>(i) / 128));
    EXPECT_EQ(angles.magnitude, 1);
}

TEST(RotaryScaling, IsLinearByTheFactor) {
    const RotaryAngles angles = rotary_angles(scaled("linear"), kRotated, kPositions);
    EXPECT_DOUBLE_EQ(frequency(angles, 0), 1.0 / 8);
    EXPECT_DOUBLE_EQ(frequency(angles, 5), std::pow(5e5, -10.0 / 128) / 8);
}

// The rule of transformers (modeling_rope_utils.py, _compute_llama3_parameters), case by case.
TEST(RotaryScaling, OfLlama3KeepsShortWavesAndDividesLongOnes) {
    const RotaryAngles angles = rotary_angles(scaled("llama3"), kRotated, kPositions);
    int kept = 0, divided = 0, between = 0;
    for (std::int64_t i = 0; i < kRotated / 2; ++i) {
        const double f = std::pow(5e5, -2.0 * static_cast<double>(i) / 128), wave = 2 * std::numbers::pi / f;
        double expected = f;
        if (wave > 8192.0 / 1) {
            expected = f / 8;
            ++divided;
        } else if (wave >= 8192.0 / 4) {
            const double smooth = (8192 / wave - 1) / (4 - 1);
            expected = (1 - smooth) * f / 8 + smooth * f;
            ++between;
        } else {
            ++kept;
        }
        EXPECT_NEAR(frequency(angles, i) / expected, 1, 1e-12) << i;
    }
    EXPECT_TRUE(kept > 0 && divided > 0 && between > 0);
    EXPECT_EQ(angles.magnitude, 1);
}

// Megatron-core's and transformers' correction range for 64 values, base 10,000, 4,096 positions, 32 and 1 turns: 10 to 23.
TEST(RotaryScaling, OfYarnRampsOverThePairs) {
    Rotary positions;
    positions.scaling = "yarn";
    positions.scaling_values.factor = 40;
    positions.scaling_values.original_positions = 4096;
    const RotaryAngles angles = rotary_angles(positions, 64, kPositions);
    const auto share = [&](int i) { return std::clamp(angles.offset + angles.by_index * i, 0.0, 1.0); };
    EXPECT_DOUBLE_EQ(share(0), 1);
    EXPECT_DOUBLE_EQ(share(10), 1);
    EXPECT_NEAR(share(11), 1 - 1.0 / 13, 1e-12);
    EXPECT_NEAR(share(22), 1.0 / 13, 1e-12);
    EXPECT_NEAR(share(23), 0, 1e-12);
    EXPECT_DOUBLE_EQ(share(31), 0);
    EXPECT_NEAR(angles.magnitude, 0.1 * std::log(40.0) + 1, 1e-15);
    EXPECT_EQ(rotary_score_factor(positions), 1);
    // DeepSeek-V2 and V3 scale the scores, and not the values.
    positions.scaling_values.mscale_all_dim = 1;
    EXPECT_DOUBLE_EQ(rotary_angles(positions, 64, kPositions).magnitude, 1);
    EXPECT_NEAR(rotary_score_factor(positions), std::pow(0.1 * std::log(40.0) + 1, 2), 1e-15);
}

}  // namespace
}  // namespace mgplan::model::rotary_scaling_test
