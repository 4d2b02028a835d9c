#pragma once
// bf16 in memory, on the host and on the GPU.

#include <bit>
#include <cstdint>

// Marks what nvcc compiles for both.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#define MGPLAN_BOTH __host__ __device__
#else
#define MGPLAN_BOTH
#endif

namespace mgplan::runtime {

/// The upper half of an fp32. Code that computes with it converts it to fp32 and rounds to the nearest (ties to even) when
/// storing; a NaN stays one.
struct Bf16 {
    std::uint16_t bits;

    Bf16() = default;
    MGPLAN_BOTH explicit Bf16(float value) {
#ifdef __CUDA_ARCH__
        bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
        const std::uint32_t quiet_nan = (word >> 16) | 0x40U;  // rounding could carry a NaN to infinity
        bits = static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
#endif
    }
    MGPLAN_BOTH operator float() const {  // NOLINT(google-explicit-constructor): every bf16 is an fp32
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
};

}  // namespace mgplan::runtime
