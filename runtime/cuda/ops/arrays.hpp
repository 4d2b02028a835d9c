#pragma once
// Kernels that work through many flat arrays in one launch. The list of arrays is a parameter of the kernel: nothing is uploaded.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

using model::kArraysOfALaunch;
inline constexpr std::size_t kMostParameterBytes = 4096;

/// A stretch of a flat array.
struct Piece {
    std::int64_t begin, count;
};

/// Arrays in shares that one team each works on, those of the first array first.
template <class Array>
struct ArrayList {
    Array arrays[kArraysOfALaunch];
    std::int64_t first[kArraysOfALaunch];  ///< share of each array
    int count;

    /// The array that a share belongs to.
    MGPLAN_BOTH int array_of(std::int64_t share) const {
        int array = 0;
        for (int step = 32; step > 0; step /= 2) {
            if (array + step < count && first[array + step] <= share) array += step;
        }
        return array;
    }
    /// The same, and which of the array's own shares it is.
    struct Share {
        const Array& array;
        std::int64_t index;
    };
    MGPLAN_BOTH Share share_of(std::int64_t share) const {
        const int at = array_of(share);
        return {arrays[at], share - first[at]};
    }
};

/// launch(list, shares) for lists of up to kArraysOfALaunch of `count` arrays: array i, make(i), has shares_of(i) shares.
template <class Array, class Make, class SharesOf, class Launch>
void each_list(std::int64_t count, Make make, SharesOf shares_of, Launch launch) {
    static_assert(kArraysOfALaunch <= 64, "array_of() looks at so many");
    for (std::int64_t from = 0; from < count; from += kArraysOfALaunch) {
        ArrayList<Array> list{};
        std::int64_t shares = 0;
        for (std::int64_t i = from; i < count && list.count < kArraysOfALaunch; ++i) {
            list.arrays[list.count] = make(i);
            list.first[list.count++] = shares;
            shares += shares_of(i);
        }
        launch(list, shares);
    }
}

/// Elements of a share where each is worked on for itself: whole packs of every type, and two of each thread at once.
inline constexpr std::int64_t kShareOfArray = 8192;
inline std::int64_t shares_of(std::int64_t elements) {
    return (elements + kShareOfArray - 1) / kShareOfArray;
}
MGPLAN_BOTH inline Piece share_of(std::int64_t elements, std::int64_t index) {
    const std::int64_t begin = index * kShareOfArray, left = elements - begin;
    return {begin, left < kShareOfArray ? left : kShareOfArray};
}

/// A team runs a body of packs over `count` values, N at a time where all addresses allow it.
template <int N, class Team, class Body>
MGPLAN_BOTH void each_pack_of(const Team& team, bool aligned, std::int64_t count, const Body& body) {
    if (aligned) {
        team.template each_pack<N>(
            count, [&](auto size, std::int64_t i) { return body.template load<decltype(size)::value>(i); },
            [&](auto size, std::int64_t i, const auto& loaded) { body.template finish<decltype(size)::value>(i, loaded); });
    } else {
        team.each(count, OneByOne<Body>{body});
    }
}

/// A team's share of an update of many arrays with gradients that are multiplied with `factor` and, where there is one, a clip factor:
/// step_of(array, first element, both factors) is the body of packs. Nothing is updated where their product is no number.
template <int N, class Main, class Team, class Array, class StepOf>
MGPLAN_BOTH void update_share(const Team& team, const ArrayList<Array>& list, std::int64_t share, double factor, const double* clipping,
                              StepOf step_of) {
    const double product = clipping == nullptr ? factor : factor * *clipping;
    if (not_a_number(product)) return;
    const auto [x, index] = list.share_of(share);
    const Piece piece = share_of(x.elements, index);
    each_pack_of<N>(team, x.aligned, piece.count, step_of(x, piece.begin, static_cast<Main>(product)));
}

}  // namespace mgplan::runtime::cuda
