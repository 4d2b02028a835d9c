#pragma once
// The second half of sums over columns: parts of the rows were added up side by side; here the parts are added in a fixed order.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Number of parts that are added one after another. Each addition waits for the one before, and columns alone do not fill a card: many
/// parts are added in parallel groups of this size, then the groups.
using model::kPartsOfGroup;

/// The sum of a group's parts takes the place of its first.
template <class Sum>
struct AddPartsOfGroup {
    Sum* sums;
    std::int64_t pitch, parts, width;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [group, column] = row_column(index, width);
        const std::int64_t first = group * kPartsOfGroup, end = first + kPartsOfGroup < parts ? first + kPartsOfGroup : parts;
        Sum sum = sums[first * pitch + column];
        for (std::int64_t part = first + 1; part < end; ++part) sum += sums[part * pitch + column];
        sums[first * pitch + column] = sum;
    }
};

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

/// gradient (width) += the sums' columns [begin, begin + width) over all parts; a part has `pitch` columns. Other columns stay.
template <class Launcher>
void add_column_sums(Launcher& launcher, Dtype dtype, const model::Output& sums, std::int64_t begin, std::int64_t pitch, std::int64_t parts,
                     std::int64_t width, const model::Output& gradient) {
    with_types(dtype, gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        Sum* const of_parts = values<Sum>(sums) + begin;
        const std::int64_t groups = (parts + kPartsOfGroup - 1) / kPartsOfGroup;
        if (groups == 1) {
            launcher.each(width, AddColumnSums<Sum, Gradient>{of_parts, values<Gradient>(gradient), pitch, parts});
        } else {
            launcher.each(groups * width, AddPartsOfGroup<Sum>{of_parts, pitch, parts, width});
            launcher.each(width, AddColumnSums<Sum, Gradient>{of_parts, values<Gradient>(gradient), kPartsOfGroup * pitch, groups});
        }
    });
}

}  // namespace mgplan::runtime::cuda
