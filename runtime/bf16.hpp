#pragma once
// bf16 in host memory.

#include <bit>
#include <cstdint>

namespace mgplan::runtime {

/// The upper half of an fp32. Who computes with it loads it, works in fp32, and rounds to the nearest (ties to even) when
/// storing; a NaN stays one.
struct Bf16 {
    std::uint16_t bits;

    Bf16() = default;
    explicit Bf16(float value) {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
        const std::uint32_t quiet_nan = (word >> 16) | 0x40U;  // rounding could carry a NaN to infinity
        bits = static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
    }
    operator float() const {  // NOLINT(google-explicit-constructor): every bf16 is an fp32
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
};

}  // namespace mgplan::runtime
