#pragma once
// See model/ops/sinks.hpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// One row's head.
template <class Element>
struct AddSink {
    using Sum = Compute<Element>;
    Element* output;
    Sum* log_sum_exp;
    const Element* sinks;
    std::int64_t heads, width;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t i) const {
        const Sum before = log_sum_exp[i], sink = Sum(sinks[row_column(i, heads).column]), most = larger(before, sink);
        const Sum after = most + logarithm(exponential(before - most) + exponential(sink - most));
        const Sum factor = exponential(before - after);
        team.barrier();  // every lane has read what is written now
        team.once([&] { log_sum_exp[i] = after; });
        team.each(width, [&](std::int64_t j) { output[i * width + j] = Element(Sum(output[i * width + j]) * factor); });
    }
};

/// One head's sum over one part of the rows.
template <class Element>
struct SinkSum {
    using Sum = Compute<Element>;
    const Element *d_output, *output, *sinks;
    const Sum* log_sum_exp;
    Sum* sums;
    std::int64_t rows, heads, width, rows_per_part;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [part, head] = row_column(index, heads);
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        const Sum sink = Sum(sinks[head]);
        const std::int64_t first = begin, column = head;  // bindings do not go into lambdas on all compilers
        const Sum sum = team.reduce(end > begin ? (end - begin) * width : 0, Sum{0}, Add{}, [&](std::int64_t i) {
            const auto place = row_column(i, width);
            const std::int64_t at = (first + place.row) * heads + column, value = at * width + place.column;
            return Sum(0) - exponential(sink - log_sum_exp[at]) * Sum(d_output[value]) * Sum(output[value]);
        });
        team.once([&] { sums[index] = sum; });
    }
};

template <class Launcher>
void add_sinks(model::Device& device, const model::SinksArguments& x) {
    with_type(x.output.dtype, [&]<class Element>() {
        Launcher::of(device).teams(x.rows * x.heads, lanes_for(x.width),
                                   AddSink<Element>{values<Element>(x.output), values<Compute<Element>>(x.log_sum_exp),
                                                    values<Element>(x.sinks), x.heads, x.width});
    });
}

template <class Launcher>
void sinks_gradient(model::Device& device, const model::SinksGradientArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.d_output.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        launcher.teams(
            x.parts * x.heads, 256,
            SinkSum<Element>{values<Element>(x.d_output), values<Element>(x.output), values<Element>(x.sinks), values<Sum>(x.log_sum_exp),
                             values<Sum>(x.column_sums), x.rows, x.heads, x.width, (x.rows + x.parts - 1) / x.parts});
    });
    add_column_sums(launcher, x.d_output.dtype, x.column_sums, 0, x.heads, x.parts, x.heads, x.gradient);
}

}  // namespace mgplan::runtime::cuda
