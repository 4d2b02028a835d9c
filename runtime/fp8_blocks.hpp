#pragma once
// Scales of blocks in fp8, on the host and on the GPU: powers of two that bring a block's largest magnitude into e4m3.

#include <bit>
#include <cstdint>

#include "runtime/fp8.hpp"

namespace mgplan::runtime {

/// As an fp32. Transformer Engine's compute_scale_from_amax with force_pow_2_scales (common/recipe/recipe_common.cuh): the quotient that
/// current scaling takes, without its fraction.
struct ScaleInFp32 {
    using Stored = float;
    /// Returns the factor for values before the cast.
    MGPLAN_BOTH static float factor(float largest) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(fp8_scale<E4m3Format>(largest)) & fp8::kInfinity);
    }
    MGPLAN_BOTH static Stored stored(float largest) { return 1 / factor(largest); }
    MGPLAN_BOTH static float value(Stored scale) { return scale; }
};

/// A byte, e of 2^(e - 127) (OCP Microscaling Formats, E8M0): Transformer Engine's float_to_e8m0 of the largest magnitude times 1/448
/// (common/cast/mxfp8/quantize_mxfp8.cuh, common/util/ptx_arch_spec.cuh), which rounds up. 255, NaN, is no block's: NaNs are no
/// magnitudes.
struct ScaleInE8m0 {
    struct Stored {
        std::uint8_t bits;
    };
    MGPLAN_BOTH static unsigned exponent(float largest) {
        constexpr float kInverseOfLargest = 1.0F / 448;
        if (!fp8_has_scale(largest)) return largest > 0 ? 254 : 0;
        const auto word = std::bit_cast<std::uint32_t>(largest * kInverseOfLargest);
        const std::uint32_t whole = word >> 23, fraction = word & 0x7fffffU;
        const bool up = fraction > 0 && whole != 254 && !(whole == 0 && fraction <= 0x400000U);
        return whole + (up ? 1U : 0U);
    }
    MGPLAN_BOTH static float factor(float largest) { return power(254U - exponent(largest)); }
    MGPLAN_BOTH static Stored stored(float largest) { return {static_cast<std::uint8_t>(exponent(largest))}; }
    MGPLAN_BOTH static float value(Stored scale) { return power(scale.bits); }
    /// 2^(e - 127); the least of them is no normal fp32.
    MGPLAN_BOTH static float power(std::uint32_t e) { return std::bit_cast<float>(e == 0 ? 0x400000U : e << 23); }
};

}  // namespace mgplan::runtime
