#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// The column of a row's target in this shard, or -1.
std::int64_t target_column(const model::CrossEntropyArguments& x, std::int64_t row) {
    const std::int64_t column = values<std::int32_t>(x.targets)[row] - x.first;
    return column >= 0 && column < x.valid ? column : -1;
}

}  // namespace

void row_maximum(model::Device& /*device*/, const model::CrossEntropyArguments& x) {
    vectorised([&] {
        with_type(x.logits.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const logits = values<Element>(x.logits) + row * x.columns;
                // A NaN must come out, not be passed over.
                const Sum maximum = maximum_over<Sum>(x.valid, [&](std::int64_t i) { return Sum(logits[i]); });
                values<Sum>(x.maximum_out)[row] = maximum;
            }
        });
    });
}

void softmax_sums(model::Device& /*device*/, const model::CrossEntropyArguments& x) {
    vectorised([&] {
        with_type(x.logits.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const logits = values<Element>(x.logits) + row * x.columns;
                const Sum maximum = values<Sum>(x.maximum)[row];
                values<Sum>(x.exponentials_out)[row] =
                    sum_over<Sum>(x.valid, [&](std::int64_t i) { return exponential(Sum(logits[i]) - maximum); });
                const std::int64_t target = target_column(x, row);
                values<Sum>(x.target_out)[row] = target >= 0 ? Sum(logits[target]) - maximum : Sum{0};
            }
        });
    });
}

void token_losses(model::Device& /*device*/, const model::TokenLossesArguments& x) {
    with_type(x.losses.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            values<Element>(x.losses)[row] =
                values<std::int32_t>(x.targets)[row] < 0
                    ? Element(0.0F)
                    : Element(std::log(Sum(values<Element>(x.exponentials)[row])) - Sum(values<Element>(x.target)[row]));
        }
    });
}

void sum_of_losses(model::Device& /*device*/, const model::SumOfLossesArguments& x) {
    with_type(x.losses.dtype, [&]<class Element>() {
        double sum = 0;
        for (std::int64_t row = 0; row < x.rows; ++row) sum += static_cast<double>(values<Element>(x.losses)[row]);
        *values<double>(x.sum) += sum;
    });
}

void cross_entropy_backward(model::Device& /*device*/, const model::CrossEntropyArguments& x) {
    vectorised([&] {
        with_type(x.logits.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            const auto d_loss = static_cast<Sum>(x.d_loss);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                Element* const logits = values<Element>(x.logits) + row * x.columns;
                if (values<std::int32_t>(x.targets)[row] < 0) {
                    std::fill(logits, logits + x.columns, Element(0.0F));
                    continue;
                }
                const Sum maximum = values<Sum>(x.maximum)[row];
                const Sum factor = d_loss / values<Sum>(x.exponentials_in)[row];
                const std::int64_t target = target_column(x, row);
                const auto slope = [&](Sum logit) {
                    const Sum level = logit / static_cast<Sum>(x.soft_cap);
                    return 1 - level * level;
                };
                Sum at_target = target >= 0 ? exponential(Sum(logits[target]) - maximum) * factor - d_loss : Sum{0};
                if (target >= 0 && x.soft_cap > 0) at_target *= slope(Sum(logits[target]));
                for (std::int64_t i = 0; i < x.valid && x.soft_cap > 0; ++i) {
                    const Sum logit = Sum(logits[i]);
                    logits[i] = Element(exponential(logit - maximum) * factor * slope(logit));
                }
                for (std::int64_t i = 0; i < x.valid && x.soft_cap == 0; ++i)
                    logits[i] = Element(exponential(Sum(logits[i]) - maximum) * factor);
                std::fill(logits + x.valid, logits + x.columns, Element(0.0F));
                if (target >= 0) logits[target] = Element(at_target);
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
