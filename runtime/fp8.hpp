#pragma once
// The two fp8 formats in memory, on the host and on the GPU (OCP 8-bit Floating Point Specification, revision 1.0; NVIDIA's cuda_fp8.h).

#include <bit>
#include <cstdint>

#include "runtime/bf16.hpp"

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

namespace mgplan::runtime {

/// Describes one format: its bits, and the code of its largest finite value. e4m3 has no infinities, and NaN in the one code
/// above the largest; e5m2 has both, as IEEE's.
template <int kMantissa, int kBias, unsigned kLargest>
struct Fp8Format {
    static constexpr int mantissa = kMantissa, bias = kBias;
    static constexpr unsigned largest_code = kLargest;
    /// The value of a code without its sign that is finite.
    MGPLAN_BOTH static float finite(unsigned magnitude) {
        // Subnormal codes count units of the least value; others are the upper bits of an fp32 of another bias.
        if (magnitude >> kMantissa == 0)
            return static_cast<float>(magnitude) * std::bit_cast<float>(static_cast<std::uint32_t>(128 - kBias - kMantissa) << 23);
        return std::bit_cast<float>((magnitude << (23 - kMantissa)) + (static_cast<std::uint32_t>(127 - kBias) << 23));
    }
    /// The largest finite value.
    MGPLAN_BOTH static float largest() { return finite(kLargest); }
    /// The code of a number without its sign, to the nearest and ties to even; what is beyond the largest value, infinity too, becomes it.
    MGPLAN_BOTH static unsigned code(float magnitude) {
        const auto word = std::bit_cast<std::uint32_t>(magnitude);
        constexpr auto kFirstNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
        if (word < kFirstNormal) {
            // One unit of this fp32 is the least value: the sum is rounded to a whole number of them.
            constexpr auto kUnits = static_cast<std::uint32_t>(128 - kBias - kMantissa + 23) << 23;
            return std::bit_cast<std::uint32_t>(magnitude + std::bit_cast<float>(kUnits)) - kUnits;
        }
        constexpr int kShift = 23 - kMantissa;
        const std::uint32_t rounded = (word + (1U << (kShift - 1)) - 1U + ((word >> kShift) & 1U)) >> kShift;
        const std::uint32_t code = rounded - (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
        return code < kLargest ? code : kLargest;
    }
};

using E4m3Format = Fp8Format<3, 7, 0x7eU>;   // up to 448
using E5m2Format = Fp8Format<2, 15, 0x7bU>;  // up to 57344

namespace fp8 {

inline constexpr std::uint32_t kMagnitude = 0x7fffffffU, kInfinity = 0x7f800000U, kNan = 0x7fc00000U;

/// As cuda_fp8.h's __nv_cvt_float_to_fp8 with __NV_SATFINITE: of NaN there is one code, whatever its sign.
template <class Format>
MGPLAN_BOTH std::uint8_t narrowed(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 24) & 0x80U, magnitude = word & kMagnitude;
    if (magnitude > kInfinity) return 0x7fU;
    return static_cast<std::uint8_t>(sign | Format::code(std::bit_cast<float>(magnitude)));
}

template <class Format>
MGPLAN_BOTH float widened(std::uint8_t bits) {
    const unsigned magnitude = bits & 0x7fU;
    const std::uint32_t sign = (bits & 0x80U) << 24;
    if (magnitude <= Format::largest_code) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(Format::finite(magnitude)) | sign);
    const bool infinite = Format::mantissa == 2 && magnitude == Format::largest_code + 1;
    return std::bit_cast<float>((infinite ? kInfinity : kNan) | sign);
}

}  // namespace fp8

/// A code in memory. Rounds to the nearest, ties to even, and saturates; a NaN stays one.
template <class F>
struct Fp8Code {
    using Format = F;
    std::uint8_t bits;

    Fp8Code() = default;
    MGPLAN_BOTH explicit Fp8Code(float value) {
#ifdef __CUDA_ARCH__
        bits = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, Format::mantissa == 3 ? __NV_E4M3 : __NV_E5M2);
#else
        bits = fp8::narrowed<Format>(value);
#endif
    }
    MGPLAN_BOTH operator float() const {
        return fp8::widened<Format>(bits);
    }  // NOLINT(google-explicit-constructor): every code is an fp32
};

using E4m3 = Fp8Code<E4m3Format>;  ///< sign, four bits of exponent, three of mantissa: weights and inputs of products
using E5m2 = Fp8Code<E5m2Format>;  ///< sign, five and two: gradients of outputs

/// Returns true if `largest` can be scaled by: it is neither 0, infinity nor NaN.
MGPLAN_BOTH inline bool fp8_has_scale(float largest) {
    return largest > 0 && std::bit_cast<std::uint32_t>(largest) < fp8::kInfinity;
}

/// Returns the factor for values before the cast, which maps the largest magnitude to the format's largest value: 1 without a
/// usable magnitude, and the largest fp32 if the quotient overflows. As Transformer Engine's compute_scale_from_amax
/// (common/recipe/recipe_common.cuh, current_scaling.cu) without epsilon and powers of two.
template <class Format>
MGPLAN_BOTH float fp8_scale(float largest) {
    if (!fp8_has_scale(largest)) return 1;
#ifdef __CUDA_ARCH__
    const float scale = __fdiv_rn(Format::largest(), largest);
#else
    const float scale = Format::largest() / largest;
#endif
    return std::bit_cast<std::uint32_t>(scale) >= fp8::kInfinity ? std::bit_cast<float>(fp8::kInfinity - 1) : scale;
}

}  // namespace mgplan::runtime
