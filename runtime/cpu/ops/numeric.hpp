#pragma once
// Reductions of the CPU kernels, in a fixed order.

#include <cstdint>
#include <limits>

#include "runtime/element_types.hpp"

namespace mgplan::runtime::cpu {

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
