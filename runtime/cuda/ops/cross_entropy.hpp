#pragma once
// See model/ops/cross_entropy.hpp.

#include "runtime/cuda/ops/add_sum.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

template <class Element, int N>
struct RowMaximum {
    using Sum = Compute<Element>;
    const Element* logits;
    Sum* maximum;
    std::int64_t columns, valid;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(logits + row * columns + i); };
        const Sum most =
            team.template reduce_packs<N>(valid, -infinity<Sum>(), Larger{}, load, [](const auto& pack, int k) { return Sum(pack[k]); });
        team.once([&] { maximum[row] = most; });
    }
};

template <class Element, int N>
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
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(in + i); };
        const Sum sum = team.template reduce_packs<N>(valid, Sum{0}, Add{}, load,
                                                      [&](const auto& pack, int k) { return exponential(Sum(pack[k]) - most); });
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

template <class Element, int N>
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
        const bool counts = targets[row] >= 0;
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(out + i); };
        team.template each_pack<N>(columns, load, [&](auto size, std::int64_t begin, const auto& pack) {
            constexpr int kSize = decltype(size)::value;
            Pack<Element, kSize> result;
            for (int k = 0; k < kSize; ++k) {
                const std::int64_t i = begin + k;
                const Sum logit = Sum(pack[k]), probability = exponential(logit - most) * factor;
                const Sum level = cap > 0 ? logit / cap : Sum{0};
                const Sum gradient = (i == target ? probability - d_loss : probability) * (1 - level * level);
                result[k] = Element(counts && i < valid ? gradient : Sum{0});
            }
            store_pack<kSize>(out + begin, result);
        });
    }
};

/// Address and row bytes of the logits, joined bitwise: rows are read in packs if it is a multiple of a pack.
template <class Element>
std::uint64_t bytes_of_rows(const model::CrossEntropyArguments& x) {
    return address(x.logits.data) | static_cast<std::uint64_t>(x.columns) * sizeof(Element);
}

template <class Launcher>
void row_maximum(model::Device& device, const model::CrossEntropyArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        with_pack<kPack<Element>>(bytes_of_rows<Element>(x), [&]<int N>() {
            Launcher::of(device).teams(
                x.rows, lanes_for(x.valid / N),
                RowMaximum<Element, N>{values<Element>(x.logits), values<Compute<Element>>(x.maximum_out), x.columns, x.valid});
        });
    });
}

template <class Launcher>
void softmax_sums(model::Device& device, const model::CrossEntropyArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        with_pack<kPack<Element>>(bytes_of_rows<Element>(x), [&]<int N>() {
            Launcher::of(device).teams(
                x.rows, lanes_for(x.valid / N),
                SoftmaxSumsOfRow<Element, N>{values<Element>(x.logits), values<std::int32_t>(x.targets), values<Sum>(x.maximum),
                                             values<Sum>(x.exponentials_out), values<Sum>(x.target_out), x.columns, x.first, x.valid});
        });
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
        with_pack<kPack<Element>>(bytes_of_rows<Element>(x), [&]<int N>() {
            Launcher::of(device).teams(
                x.rows, lanes_for(x.columns / N),
                CrossEntropyGradient<Element, N>{values<Element>(x.logits), values<std::int32_t>(x.targets), values<Sum>(x.maximum),
                                                 values<Sum>(x.exponentials_in), x.columns, x.first, x.valid, static_cast<Sum>(x.d_loss),
                                                 static_cast<Sum>(x.soft_cap)});
        });
    });
}

}  // namespace mgplan::runtime::cuda
