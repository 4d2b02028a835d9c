#include "runtime/comm/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "plan/text/errors.hpp"
#include "runtime/bf16.hpp"

namespace mgplan::runtime {
namespace {

using model::Reduction;

// Type that numbers of a type are added in.
template <class Element>
struct Accumulator {
    using Type = Element;
    static Type from(Element value) { return value; }
    static Element to(Type value) { return value; }
};
template <>
struct Accumulator<Bf16> {
    using Type = float;
    static Type from(Bf16 value) { return value; }
    static Bf16 to(Type value) { return Bf16(value); }
};
template <>
struct Accumulator<std::int32_t> {
    using Type = std::int64_t;
    static Type from(std::int32_t value) { return value; }
    static std::int32_t to(Type value) { return static_cast<std::int32_t>(value); }  // modulo 2^32
};

template <class Number>
Number larger(Number a, Number b) {
    if constexpr (std::is_floating_point_v<Number>) {
        return b > a || b != b ? b : a;  // a NaN in a stays: nothing is larger
    } else {
        return std::max(a, b);
    }
}

template <class Element>
void reduce_range(Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::int64_t begin,
                  std::int64_t end) {
    using Via = Accumulator<Element>;
    using Sum = typename Via::Type;
    constexpr std::int64_t kTile = 1024;  // sums and results of a tile stay in the first-level cache
    std::array<Sum, kTile> sums;
    std::array<Element, kTile> results;
    for (std::int64_t at = begin; at < end; at += kTile) {
        const std::int64_t count = std::min(kTile, end - at);
        const auto* first = reinterpret_cast<const Element*>(inputs[0]) + at;
        for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] = Via::from(first[i]);
        for (const std::byte* input : inputs.subspan(1)) {
            const auto* next = reinterpret_cast<const Element*>(input) + at;
            if (reduction == Reduction::maximum) {
                for (std::int64_t i = 0; i < count; ++i) {
                    auto& sum = sums[static_cast<std::size_t>(i)];
                    sum = larger(sum, Via::from(next[i]));
                }
            } else {
                for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] += Via::from(next[i]);
            }
        }
        if (reduction == Reduction::average) {
            const auto ranks = static_cast<Sum>(inputs.size());
            for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] /= ranks;
        }
        for (std::int64_t i = 0; i < count; ++i) results[static_cast<std::size_t>(i)] = Via::to(sums[static_cast<std::size_t>(i)]);
        for (std::byte* output : outputs) {
            std::memcpy(reinterpret_cast<Element*>(output) + at, results.data(), static_cast<std::size_t>(count) * sizeof(Element));
        }
    }
}

}  // namespace

bool reducible(Dtype dtype, Reduction reduction) {
    switch (dtype) {
        case Dtype::fp64:
        case Dtype::fp32:
        case Dtype::bf16:
            return true;
        case Dtype::int32:
            return reduction != Reduction::average;
        case Dtype::fp16:
        case Dtype::fp8:
        case Dtype::e5m2:
            return false;
    }
    return false;
}

void reduce_in_order(Dtype dtype, Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     std::int64_t begin, std::int64_t end) {
    MGPLAN_ASSERT(!inputs.empty() && reducible(dtype, reduction), "numbers of this type can be reduced");
    switch (dtype) {
        case Dtype::fp64:
            return reduce_range<double>(reduction, inputs, outputs, begin, end);
        case Dtype::fp32:
            return reduce_range<float>(reduction, inputs, outputs, begin, end);
        case Dtype::bf16:
            return reduce_range<Bf16>(reduction, inputs, outputs, begin, end);
        case Dtype::int32:
            return reduce_range<std::int32_t>(reduction, inputs, outputs, begin, end);
        case Dtype::fp16:
        case Dtype::fp8:
        case Dtype::e5m2:
            return;
    }
}

void widen_bf16(const std::uint16_t* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<Bf16>(from[i]);
}

void narrow_to_bf16(const float* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = Bf16(from[i]).bits;
}

}  // namespace mgplan::runtime
