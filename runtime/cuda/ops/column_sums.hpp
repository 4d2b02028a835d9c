#pragma once
// The second half of sums over columns: parts of the rows were added up side by side; here the parts are added in order.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Sum, class Gradient>
struct AddColumnSums {
    const Sum* sums;
    Gradient* gradient;
    std::int64_t pitch, parts;

    MGPLAN_BOTH void operator()(std::int64_t column) const {
        Sum sum = 0;
        for (std::int64_t part = 0; part < parts; ++part) sum += sums[part * pitch + column];
        gradient[column] = Gradient(Sum(gradient[column]) + sum);
    }
};

/// gradient (width) += the sums' columns [begin, begin + width) over all parts; a part has `pitch` columns.
template <class Launcher>
void add_column_sums(Launcher& launcher, Dtype dtype, const model::Output& sums, std::int64_t begin, std::int64_t pitch, std::int64_t parts,
                     std::int64_t width, const model::Output& gradient) {
    with_types(dtype, gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        launcher.each(width, AddColumnSums<Sum, Gradient>{values<Sum>(sums) + begin, values<Gradient>(gradient), pitch, parts});
    });
}

}  // namespace mgplan::runtime::cuda
