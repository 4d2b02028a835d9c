#pragma once
// The exponential function in a form that compilers vectorise.

#include <bit>
#include <cmath>
#include <cstdint>

namespace mgplan::runtime::cpu {

/// e^x to 2 units in the last place; 0 below the smallest normal result, infinity above the largest, NaN for NaN.
inline float exponential(float x) {
    // x = n·ln 2 + r, |r| <= ln 2 / 2; adding 1.5·2^23 rounds to an integer and leaves it in the low bits.
    constexpr float kRounder = 12582912.0F;
    constexpr float kLowest = -87.33654F, kHighest = 88.72283F;
    const float inside = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
    const float shifted = inside * 1.44269504F + kRounder;
    const float n = shifted - kRounder;
    const float r = (inside - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts, the first exact in 9 bits
    // Taylor to the seventh degree: the rest is below 0.35^8 / 8! = 6e-9.
    float e = 1.0F / 5040;
    e = e * r + 1.0F / 720;
    e = e * r + 1.0F / 120;
    e = e * r + 1.0F / 24;
    e = e * r + 1.0F / 6;
    e = e * r + 0.5F;
    e = e * r + 1.0F;
    e = e * r + 1.0F;
    // 2^n in two halves, because 2^128 alone would overflow.
    const std::int32_t power = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder);
    const std::int32_t half = power >> 1;
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
    const float rest = std::bit_cast<float>(static_cast<std::uint32_t>(power - half + 127) << 23);
    const float result = e * scale * rest;
    const float bounded = x < kLowest ? 0.0F : (x > kHighest ? HUGE_VALF : result);
    return x == x ? bounded : x;
}

inline double exponential(double x) {
    return std::exp(x);
}

}  // namespace mgplan::runtime::cpu
