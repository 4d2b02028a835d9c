#pragma once
// Number types of the CPU kernels, and the way from a dtype to a template argument.

#include <cstdint>
#include <limits>
#include <type_traits>

#include "model/ops/kernel_table.hpp"
#include "plan/errors.hpp"
#include "runtime/bf16.hpp"

namespace mgplan::runtime::cpu {

using runtime::Bf16;

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

/// combine() over the term(i) of i < count, from `start`, in interleaved partial results that are combined at the end: the
/// order depends on count alone and the loop fits vector units. `start` must change nothing.
template <class Result, class Term, class Combine>
Result reduce_over(std::int64_t count, Result start, Term term, Combine combine) {
    constexpr std::int64_t kLanes = 16;
    Result lanes[kLanes];
    for (auto& lane : lanes) lane = start;
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = combine(lanes[lane], term(i + lane));
    }
    for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] = combine(lanes[lane], term(i));
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
    }
    return lanes[0];
}

/// Σ term(i) over i < count.
template <class Sum, class Term>
Sum sum_over(std::int64_t count, Term term) {
    return reduce_over(count, Sum{0}, term, [](Sum a, Sum b) { return a + b; });
}

/// The largest term(i) over i < count; NaN where any is, -infinity where there are none.
template <class Value, class Term>
Value maximum_over(std::int64_t count, Term term) {
    // Nothing is larger than a NaN, so one that got in stays.
    return reduce_over(count, -std::numeric_limits<Value>::infinity(), term, [](Value a, Value b) { return b > a || b != b ? b : a; });
}

}  // namespace mgplan::runtime::cpu
