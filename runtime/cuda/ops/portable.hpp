#pragma once
// Types with which one kernel body compiles for the GPU and, in tests, for the host: numbers, and teams of lanes that
// work on one row together. A body never depends on where it runs.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "runtime/bf16.hpp"
#include "runtime/element_types.hpp"

namespace mgplan::runtime::cuda {

template <class To, class From>
MGPLAN_BOTH To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

MGPLAN_BOTH inline float exponential(float x) {
    return expf(x);
}
MGPLAN_BOTH inline double exponential(double x) {
    return exp(x);
}
MGPLAN_BOTH inline float logarithm(float x) {
    return logf(x);
}
MGPLAN_BOTH inline double logarithm(double x) {
    return log(x);
}
MGPLAN_BOTH inline float square_root(float x) {
    return sqrtf(x);
}
MGPLAN_BOTH inline double square_root(double x) {
    return sqrt(x);
}
MGPLAN_BOTH inline float hyperbolic_tangent(float x) {
    return tanhf(x);
}
MGPLAN_BOTH inline double hyperbolic_tangent(double x) {
    return tanh(x);
}
MGPLAN_BOTH inline float error_function(float x) {
    return erff(x);
}
MGPLAN_BOTH inline double error_function(double x) {
    return erf(x);
}
MGPLAN_BOTH inline float log_of_one_plus(float x) {
    return log1pf(x);
}
MGPLAN_BOTH inline double log_of_one_plus(double x) {
    return log1p(x);
}
MGPLAN_BOTH inline float exponential_less_one(float x) {
    return expm1f(x);
}
MGPLAN_BOTH inline double exponential_less_one(double x) {
    return expm1(x);
}
/// log(1 + e^x), and its derivative.
template <class Number>
MGPLAN_BOTH Number softplus(Number x) {
    return x > 0 ? x + log_of_one_plus(exponential(-x)) : log_of_one_plus(exponential(x));
}
template <class Number>
MGPLAN_BOTH Number softplus_slope(Number x) {
    return 1 / (1 + exponential(-x));
}
template <class Number>
MGPLAN_BOTH Number infinity() {
    return bits_as<float>(std::uint32_t{0x7f800000U});
}
template <class Number>
MGPLAN_BOTH bool not_a_number(Number x) {
    return x != x;
}

/// Row and column of a flat index. 64-bit division is slow on a GPU, so small numbers are divided as 32-bit ones.
struct RowColumn {
    std::int64_t row, column;
};
MGPLAN_BOTH inline RowColumn row_column(std::int64_t index, std::int64_t width) {
    if (((index | width) >> 32) == 0) {
        const auto small = static_cast<std::uint32_t>(index), by = static_cast<std::uint32_t>(width);
        const std::uint32_t row = small / by;
        return {row, small - row * by};
    }
    const std::int64_t row = index / width;
    return {row, index - row * width};
}

/// The larger of two; NaN where either is.
template <class Number>
MGPLAN_BOTH Number larger(Number a, Number b) {
    return b > a || b != b ? b : a;
}

/// A value and its place in a row, for choosing the largest.
template <class Number>
struct Candidate {
    Number value;
    std::int64_t place;  ///< negative: none
};

/// Returns true if a comes before b: larger values first, ties by place, NaN after all numbers, none last.
template <class Number>
MGPLAN_BOTH bool precedes(const Candidate<Number>& a, const Candidate<Number>& b) {
    if (a.place < 0) return false;
    if (b.place < 0) return true;
    const bool a_nan = not_a_number(a.value), b_nan = not_a_number(b.value);
    if (a_nan != b_nan) return b_nan;
    if (!a_nan && a.value != b.value) return a.value > b.value;
    return a.place < b.place;
}

struct Add {
    template <class Number>
    MGPLAN_BOTH Number operator()(Number a, Number b) const {
        return a + b;
    }
};
struct Larger {
    template <class Number>
    MGPLAN_BOTH Number operator()(Number a, Number b) const {
        return larger(a, b);
    }
};
struct Smaller {
    MGPLAN_BOTH std::int64_t operator()(std::int64_t a, std::int64_t b) const { return b < a ? b : a; }
};
struct First {
    template <class Number>
    MGPLAN_BOTH Candidate<Number> operator()(const Candidate<Number>& a, const Candidate<Number>& b) const {
        return precedes(b, a) ? b : a;
    }
};

// A Team offers to a body, which all its lanes run together:
//   each(count, f)                   f(i) for every i, spread over the lanes
//   reduce(count, start, op, term)   op over start and all term(i); every lane gets the result. Lane l takes l, l + lanes,
//                                    …; lanes are then joined in halves: the order depends on count and lanes alone
//   each_pack<N>(count, load, f)     f(i, load(i)) for packs of N values from element i on, then for single values; load and f take
//                                    Width<N> or Width<1> first
//   reduce_packs<N>(count, start, op, load, term)   op over start and all term(load(i), k) of packs, likewise. Lane l takes packs l,
//                                    l + lanes, …, of each its values in order, then a single value that is left over
//   select(count, wanted, f)         f(i, n) for every i with wanted(i), n counting them in the order of i
//   once(f)                          f() on one lane
//   barrier()                        after it all lanes see what any lane wrote before it
//   shared<Value, Count>()           memory for Count values that all lanes see, the same at each call
//   phases<State>(f, g, …)           f(lane, state) on every lane, with a state of its own that begins undefined; a barrier; g(lane, state)
//   …
// each, each_pack, select and once have no barrier of their own, phases none after the last. reduce and reduce_packs end with one.

/// Number of values that a call of load reads.
template <int N>
using Width = std::integral_constant<int, N>;

/// The host's team: lanes run one after another. Its sums equal those of a GPU's team with the same number of lanes.
class HostTeam {
public:
    static constexpr int kMostLanes = 1024;
    explicit HostTeam(int lanes) : lanes_(lanes) {}

    template <class Work>
    void each(std::int64_t count, Work work) const {
        // Backwards, so that a body that relies on the order of the lanes shows.
        for (std::int64_t i = count; i-- > 0;) work(i);
    }
    template <class Value, class Join, class Term>
    Value reduce(std::int64_t count, Value start, Join join, Term term) const {
        Value values[kMostLanes]{};
        for (int lane = 0; lane < lanes_; ++lane) {
            values[lane] = start;
            for (std::int64_t i = lane; i < count; i += lanes_) values[lane] = join(values[lane], term(i));
        }
        return join_lanes(values, join);
    }
    template <int N, class Load, class Work>
    void each_pack(std::int64_t count, Load load, Work work) const {
        const std::int64_t packs = count / N;
        for (std::int64_t i = count; i-- > packs * N;) work(Width<1>{}, i, load(Width<1>{}, i));
        for (std::int64_t pack = packs; pack-- > 0;) work(Width<N>{}, pack * N, load(Width<N>{}, pack * N));
    }
    template <int N, class Value, class Join, class Load, class Term>
    Value reduce_packs(std::int64_t count, Value start, Join join, Load load, Term term) const {
        Value values[kMostLanes]{};
        const std::int64_t packs = count / N;
        for (int lane = 0; lane < lanes_; ++lane) {
            values[lane] = start;
            for (std::int64_t pack = lane; pack < packs; pack += lanes_) {
                const auto loaded = load(Width<N>{}, pack * N);
                for (int k = 0; k < N; ++k) values[lane] = join(values[lane], term(loaded, k));
            }
            const std::int64_t left = packs * N + lane;
            if (left < count) values[lane] = join(values[lane], term(load(Width<1>{}, left), 0));
        }
        return join_lanes(values, join);
    }
    template <class Wanted, class Work>
    void select(std::int64_t count, Wanted wanted, Work work) const {
        std::int64_t found = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            if (wanted(i)) work(i, found++);
        }
    }
    template <class Work>
    void once(Work work) const {
        work();
    }
    void barrier() const {}
    template <class Value, int Count>
    [[nodiscard]] Value* shared() const {
        static thread_local Value values[Count];
        return values;
    }
    template <class State, class... Phases>
    void phases(Phases... work) const {
        std::vector<State> states(static_cast<std::size_t>(lanes_));
        const auto run = [&](auto& phase) {
            for (int lane = lanes_; lane-- > 0;) phase(lane, states[static_cast<std::size_t>(lane)]);
        };
        (run(work), ...);
    }

private:
    template <class Value, class Join>
    Value join_lanes(Value* values, Join join) const {
        for (int half = lanes_ / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) values[lane] = join(values[lane], values[lane + half]);
        }
        return values[0];
    }

    int lanes_;  // a power of two
};

}  // namespace mgplan::runtime::cuda
