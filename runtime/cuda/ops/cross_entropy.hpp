#pragma once
// See model/ops/cross_entropy.hpp.

#include "runtime/cuda/ops/add_sum.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
struct RowMaximum {
    using Sum = Compute<Element>;
    const Element* logits;
    Sum* maximum;
    std::int64_t columns, valid;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum most = team.reduce(valid, -infinity<Sum>(), Larger{}, [&](std::int64_t i) { return Sum(logits[row * columns + i]); });
        team.once([&] { maximum[row] = most; });
    }
};

template <class Element>
struct SoftmaxSumsOfRow {
    using Sum = Compute<Element>;
    const Element* logits;
    const std::int32_t* targets;
    const Sum* maximum;
    Sum *exponentials, *target;
    std::int64_t columns, first, valid;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = logits + row * columns;
        const Sum most = maximum[row];
        const Sum sum = team.reduce(valid, Sum{0}, Add{}, [&](std::int64_t i) { return exponential(Sum(in[i]) - most); });
        team.once([&] {
            const std::int64_t column = targets[row] - first;
            exponentials[row] = sum;
            target[row] = column >= 0 && column < valid ? Sum(in[column]) - most : Sum{0};
        });
    }
};

template <class Element>
struct TokenLoss {
    const Element *exponentials, *target;
    const std::int32_t* targets;
    Element* losses;
    MGPLAN_BOTH void operator()(std::int64_t row) const {
        using Sum = Compute<Element>;
        losses[row] = targets[row] < 0 ? Element(0.0F) : Element(logarithm(Sum(exponentials[row])) - Sum(target[row]));
    }
};

template <class Element>
struct CrossEntropyGradient {
    using Sum = Compute<Element>;
    Element* logits;
    const std::int32_t* targets;
    const Sum *maximum, *exponentials;
    std::int64_t columns, first, valid;
    Sum d_loss, cap;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        Element* const out = logits + row * columns;
        const Sum most = maximum[row], factor = d_loss / exponentials[row];
        const std::int64_t target = targets[row] - first;
        team.each(columns, [&](std::int64_t i) {
            if (i >= valid || targets[row] < 0) {
                out[i] = Element(0.0F);
                return;
            }
            const Sum probability = exponential(Sum(out[i]) - most) * factor, level = cap > 0 ? Sum(out[i]) / cap : Sum{0};
            out[i] = Element((i == target ? probability - d_loss : probability) * (1 - level * level));
        });
    }
};

template <class Launcher>
void row_maximum(model::Device& device, const model::CrossEntropyArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        Launcher::of(device).teams(
            x.rows, lanes_for(x.valid),
            RowMaximum<Element>{values<Element>(x.logits), values<Compute<Element>>(x.maximum_out), x.columns, x.valid});
    });
}

template <class Launcher>
void softmax_sums(model::Device& device, const model::CrossEntropyArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        Launcher::of(device).teams(
            x.rows, lanes_for(x.valid),
            SoftmaxSumsOfRow<Element>{values<Element>(x.logits), values<std::int32_t>(x.targets), values<Sum>(x.maximum),
                                      values<Sum>(x.exponentials_out), values<Sum>(x.target_out), x.columns, x.first, x.valid});
    });
}

template <class Launcher>
void token_losses(model::Device& device, const model::TokenLossesArguments& x) {
    with_type(x.losses.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows, TokenLoss<Element>{values<Element>(x.exponentials), values<Element>(x.target),
                                                             values<std::int32_t>(x.targets), values<Element>(x.losses)});
    });
}

template <class Launcher>
void sum_of_losses(model::Device& device, const model::SumOfLossesArguments& x) {
    with_type(x.losses.dtype, [&]<class Element>() {
        Launcher::of(device).teams(1, AddSum<Element>::kLanes,
                                   AddSum<Element>{values<Element>(x.losses), values<double>(x.sum), x.rows, 1});
    });
}

template <class Launcher>
void cross_entropy_backward(model::Device& device, const model::CrossEntropyArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        Launcher::of(device).teams(x.rows, lanes_for(x.columns),
                                   CrossEntropyGradient<Element>{values<Element>(x.logits), values<std::int32_t>(x.targets),
                                                                 values<Sum>(x.maximum), values<Sum>(x.exponentials_in), x.columns, x.first,
                                                                 x.valid, static_cast<Sum>(x.d_loss), static_cast<Sum>(x.soft_cap)});
    });
}

}  // namespace mgplan::runtime::cuda
