#pragma once
// See model/ops/normal_values.hpp; the formula is that of runtime/cpu/ops/normal_values.cpp.

#include <numbers>

#include "model/ops/philox.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
struct FillNormal {
    Element* x;
    std::int64_t columns, pitch;
    std::uint64_t key, first;
    double deviation;

    MGPLAN_BOTH double uniform(std::uint64_t counter, double offset) const {
        return (static_cast<double>(model::spread_bits(key ^ model::spread_bits(counter)) >> 11U) + offset) * 0x1p-53;
    }
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, column] = row_column(index, columns);
        const std::uint64_t counter = first + static_cast<std::uint64_t>(row * pitch) + static_cast<std::uint64_t>(column);
        const double u = uniform(2 * counter, 0.5), v = uniform(2 * counter + 1, 0);
        const double normal = square_root(-2 * logarithm(u)) * cos(2 * std::numbers::pi * v);
        x[index] = Element(static_cast<Compute<Element>>(deviation * normal));
    }
};

template <class Launcher>
void fill_normal(model::Device& device, const model::FillNormalArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * x.columns, FillNormal<Element>{values<Element>(x.x), x.columns, x.draw.pitch, x.draw.key,
                                                                          x.draw.first, x.draw.deviation});
    });
}

}  // namespace mgplan::runtime::cuda
