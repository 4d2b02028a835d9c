#pragma once
// One value in device memory that takes up sums, in a fixed order.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// One team: total += factor · the sum of all values.
template <class Element>
struct AddSum {
    static constexpr int kLanes = 256;

    const Element* all;
    double* total;
    std::int64_t count;
    double factor;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t /*one*/) const {
        const double sum = team.reduce(count, 0.0, Add{}, [&](std::int64_t i) { return static_cast<double>(all[i]); });
        team.once([&] { *total += factor * sum; });
    }
};

}  // namespace mgplan::runtime::cuda
