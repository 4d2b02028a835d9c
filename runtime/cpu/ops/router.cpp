#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {
namespace {

template <class Sum>
struct Softmax {
    Sum maximum, sum;
};

template <class Element>
Softmax<Compute<Element>> softmax_of(const Element* logits, std::int64_t count) {
    using Sum = Compute<Element>;
    Sum maximum = logits[0];
    for (std::int64_t i = 1; i < count; ++i) maximum = std::max(maximum, Sum(logits[i]));
    return {maximum, sum_over<Sum>(count, [&](std::int64_t i) { return exponential(Sum(logits[i]) - maximum); })};
}

/// The top_k largest by falling value, ties to the lower index; NaN counts as smallest, so that ids stay in range.
template <class Element>
void choose(const Element* row, std::int64_t count, std::int64_t top_k, std::int32_t* chosen) {
    using Sum = Compute<Element>;
    for (std::int64_t slot = 0; slot < top_k; ++slot) {
        std::int64_t best = -1;
        for (std::int64_t i = 0; i < count; ++i) {
            if (std::find(chosen, chosen + slot, static_cast<std::int32_t>(i)) != chosen + slot) continue;
            if (best < 0 || Sum(row[i]) > Sum(row[best]) || (std::isnan(Sum(row[best])) && !std::isnan(Sum(row[i])))) best = i;
        }
        chosen[slot] = static_cast<std::int32_t>(best);
    }
}

}  // namespace

void route(model::Device& /*device*/, const model::RouteArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Element* const logits = values<Element>(x.logits) + row * x.expert_count;
            std::int32_t* const chosen = values<std::int32_t>(x.experts) + row * x.top_k;
            Sum* const probabilities = values<Sum>(x.probabilities) + row * x.top_k;
            Sum* const scores = values<Sum>(x.scores) + row * x.expert_count;
            if (x.score == RouterScore::softmax) {
                const auto softmax = softmax_of(logits, x.expert_count);
                for (std::int64_t i = 0; i < x.expert_count; ++i) scores[i] = exponential(Sum(logits[i]) - softmax.maximum) / softmax.sum;
                choose(logits, x.expert_count, x.top_k, chosen);
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) {
                    probabilities[slot] = exponential(Sum(logits[chosen[slot]]) - Sum(logits[chosen[0]]));
                }
            } else {
                for (std::int64_t i = 0; i < x.expert_count; ++i) scores[i] = 1 / (1 + exponential(-Sum(logits[i])));
                choose(scores, x.expert_count, x.top_k, chosen);
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) probabilities[slot] = scores[chosen[slot]];
            }
            const Sum sum = sum_over<Sum>(x.top_k, [&](std::int64_t slot) { return probabilities[slot]; });
            for (std::int64_t slot = 0; slot < x.top_k; ++slot) probabilities[slot] /= sum;
        }
    });
}

// p_i = s_i / S over the chosen. softmax: s_i = exp(logit_i), so d logit_i = p_i (dp_i - Σ p dp);
// sigmoid: d s_i = (dp_i - Σ p dp) / S and d logit_i = d s_i · s_i (1 - s_i) = p_i (1 - s_i) (dp_i - Σ p dp).
void route_backward(model::Device& /*device*/, const model::RouteBackwardArguments& x) {
    with_type(x.scores.dtype, [&]<class Sum>() {
        if constexpr (!std::is_same_v<Sum, Bf16>) {
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const std::int32_t* const chosen = values<std::int32_t>(x.experts) + row * x.top_k;
                const Sum* const p = values<Sum>(x.probabilities) + row * x.top_k;
                const Sum* const dp = values<Sum>(x.d_probabilities) + row * x.top_k;
                const Sum* const scores = values<Sum>(x.scores) + row * x.expert_count;
                Sum* const d_logits = values<Sum>(x.d_logits) + row * x.expert_count;
                std::fill(d_logits, d_logits + x.expert_count, Sum{0});
                const Sum mean = sum_over<Sum>(x.top_k, [&](std::int64_t slot) { return p[slot] * dp[slot]; });
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) {
                    const Sum slope = x.score == RouterScore::softmax ? Sum{1} : 1 - scores[chosen[slot]];
                    d_logits[chosen[slot]] = p[slot] * slope * (dp[slot] - mean);
                }
            }
        }
    });
}

double auxiliary_loss(model::Device& /*device*/, const model::AuxiliaryLossArguments& x) {
    return with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        double total = 0;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Element* const logits = values<Element>(x.logits) + row * x.expert_count;
            const auto softmax = softmax_of(logits, x.expert_count);
            total += sum_over<double>(x.expert_count, [&](std::int64_t e) {
                return static_cast<double>(x.copies[e]) * static_cast<double>(exponential(Sum(logits[e]) - softmax.maximum) / softmax.sum);
            });
        }
        return x.factor * total;
    });
}

// With p = softmax(logits) of a row: d logit_e = factor · p_e (copies_e - Σ p copies).
void auxiliary_loss_backward(model::Device& /*device*/, const model::AuxiliaryLossArguments& x) {
    with_types(x.logits.dtype, x.d_logits.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Element* const logits = values<Element>(x.logits) + row * x.expert_count;
            Gradient* const into = values<Gradient>(x.d_logits) + row * x.expert_count;
            const auto softmax = softmax_of(logits, x.expert_count);
            const auto probability = [&](std::int64_t e) { return exponential(Sum(logits[e]) - softmax.maximum) / softmax.sum; };
            const Sum mean = sum_over<Sum>(x.expert_count, [&](std::int64_t e) { return probability(e) * static_cast<Sum>(x.copies[e]); });
            for (std::int64_t e = 0; e < x.expert_count; ++e) {
                const Sum slope = probability(e) * (static_cast<Sum>(x.copies[e]) - mean);
                into[e] = Gradient(Sum(into[e]) + static_cast<Sum>(x.factor) * slope);
            }
        }
    });
}

void count_by_expert(model::Device& /*device*/, const model::SortByExpertArguments& x) {
    std::fill(x.counts, x.counts + x.expert_count, 0);
    for (std::int64_t i = 0; i < x.entries; ++i) {
        const std::int32_t expert = values<std::int32_t>(x.experts)[i];
        MGPLAN_ASSERT(expert < x.expert_count, "the chosen expert exists");
        if (expert >= 0) ++x.counts[expert];
    }
}

void sort_by_expert(model::Device& /*device*/, const model::SortByExpertArguments& x) {
    std::vector<std::int64_t> next(static_cast<std::size_t>(x.expert_count));  // where the next copy of each expert goes
    for (std::size_t expert = 1; expert < next.size(); ++expert) next[expert] = next[expert - 1] + x.counts[expert - 1];
    for (std::int64_t i = 0; i < x.entries; ++i) {
        const std::int32_t expert = values<std::int32_t>(x.experts)[i];
        if (expert >= 0) values<std::int32_t>(x.source)[next[static_cast<std::size_t>(expert)]++] = static_cast<std::int32_t>(i);
    }
}

void permute_rows(model::Device& /*device*/, const model::PermuteArguments& x) {
    const std::int64_t row_bytes = x.width * bytes_of(x.x.dtype);
    for (std::int64_t copy = 0; copy < x.copies; ++copy) {
        const std::int64_t row = values<std::int32_t>(x.source)[copy] / x.top_k;
        std::memcpy(static_cast<std::byte*>(x.y.data) + copy * row_bytes, static_cast<const std::byte*>(x.x.data) + row * row_bytes,
                    static_cast<std::size_t>(row_bytes));
    }
}

void unpermute_rows(model::Device& /*device*/, const model::PermuteArguments& x) {
    std::int32_t* const inverse = values<std::int32_t>(x.inverse);
    std::fill(inverse, inverse + x.rows * x.top_k, -1);
    for (std::int64_t copy = 0; copy < x.copies; ++copy) {
        inverse[values<std::int32_t>(x.source)[copy]] = static_cast<std::int32_t>(copy);
    }
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            Element* const out = values<Element>(x.y) + row * x.width;
            for (std::int64_t i = 0; i < x.width; ++i) {
                Sum sum = 0;
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) {
                    const std::int64_t copy = inverse[row * x.top_k + slot];
                    if (copy >= 0) sum += Sum(values<Element>(x.x)[copy * x.width + i]);
                }
                out[i] = Element(sum);
            }
        }
    });
}

void permute_probabilities(model::Device& /*device*/, const model::PermuteArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        for (std::int64_t copy = 0; copy < x.copies; ++copy) {
            values<Element>(x.y)[copy] = values<Element>(x.x)[values<std::int32_t>(x.source)[copy]];
        }
    });
}

void unpermute_probabilities(model::Device& /*device*/, const model::PermuteArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Element* const out = values<Element>(x.y);
        std::fill(out, out + x.rows * x.top_k, Element(0.0F));
        for (std::int64_t copy = 0; copy < x.copies; ++copy) out[values<std::int32_t>(x.source)[copy]] = values<Element>(x.x)[copy];
    });
}

void reorder_blocks(model::Device& /*device*/, const model::ReorderBlocksArguments& x) {
    std::vector<std::int64_t> starts(static_cast<std::size_t>(x.blocks));  // first row of each block in x
    for (std::size_t block = 1; block < starts.size(); ++block) starts[block] = starts[block - 1] + x.block_rows[block - 1];
    auto* to = static_cast<std::byte*>(x.y.data);
    for (std::int64_t i = 0; i < x.blocks; ++i) {
        const std::int64_t block = x.order[i], bytes = x.block_rows[block] * x.row_bytes;
        std::memcpy(to, static_cast<const std::byte*>(x.x.data) + starts[static_cast<std::size_t>(block)] * x.row_bytes,
                    static_cast<std::size_t>(bytes));
        to += bytes;
    }
}

}  // namespace mgplan::runtime::cpu
