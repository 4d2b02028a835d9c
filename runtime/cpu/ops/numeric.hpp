#pragma once
// Number types of the CPU kernels, and the way from a dtype to a template argument.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "model/ops/kernel_table.hpp"
#include "plan/errors.hpp"

namespace mgplan::runtime::cpu {

/// The upper half of an fp32. Kernels load it, work in fp32, and round to nearest even when they store.
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

/// What sums over values of a type are made in.
template <class Element>
using Compute = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
const Element* values(const model::Input& input) {
    return static_cast<const Element*>(input.data);
}
template <class Element>
Element* values(const model::Output& output) {
    return static_cast<Element*>(output.data);
}

/// Calls work.operator()<Element>() with the type of a dtype.
template <class Work>
decltype(auto) with_type(Dtype dtype, Work&& work) {
    switch (dtype) {
        case Dtype::fp64:
            return work.template operator()<double>();
        case Dtype::fp32:
            return work.template operator()<float>();
        case Dtype::bf16:
            return work.template operator()<Bf16>();
        default:
            break;
    }
    MGPLAN_ASSERT(false, "the CPU computes in fp64, fp32 and bf16");
    return work.template operator()<float>();
}

/// The same for a type and what its sums go into: itself, or fp32.
template <class Work>
void with_types(Dtype from, Dtype into, Work&& work) {
    if (from == into) {
        with_type(from, [&]<class Element>() { work.template operator()<Element, Element>(); });
    } else {
        MGPLAN_ASSERT(from == Dtype::bf16 && into == Dtype::fp32, "sums of bf16 go into bf16 or fp32");
        work.template operator()<Bf16, float>();
    }
}

/// Σ term(i) over i < count, in eight interleaved sums: the order depends on count alone and the loop fits vector units.
template <class Sum, class Term>
Sum sum_over(std::int64_t count, Term term) {
    constexpr std::int64_t kLanes = 8;
    Sum sums[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
    }
    for (std::int64_t lane = 0; i < count; ++i, ++lane) sums[lane] += term(i);
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace mgplan::runtime::cpu
