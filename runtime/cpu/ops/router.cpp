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

/// Chooses the top_k largest keys of [0, count) by falling value, ties to the lower index; NaN counts as smallest, so that ids stay in
/// range. allowed(i): true for candidates, of which there are enough.
template <class Key, class Allowed>
void choose(std::int64_t count, std::int64_t top_k, Key key, Allowed allowed, std::int32_t* chosen) {
    for (std::int64_t slot = 0; slot < top_k; ++slot) {
        std::int64_t best = -1;
        for (std::int64_t i = 0; i < count; ++i) {
            if (!allowed(i) || std::find(chosen, chosen + slot, static_cast<std::int32_t>(i)) != chosen + slot) continue;
            if (best < 0 || key(i) > key(best) || (std::isnan(key(best)) && !std::isnan(key(i)))) best = i;
        }
        chosen[slot] = static_cast<std::int32_t>(best);
    }
}

/// The experts of one row, within the groups with the largest sums where there are groups.
template <class Key>
void choose_experts(const model::RouteArguments& x, Key key, std::int32_t* chosen) {
    const auto any = [](std::int64_t) { return true; };
    if (x.groups == 0) return choose(x.expert_count, x.top_k, key, any, chosen);
    using Sum = decltype(key(0));
    const std::int64_t members = x.expert_count / x.groups, counted = x.group_scores;
    std::vector<Sum> sums(static_cast<std::size_t>(x.groups), Sum{0});
    std::vector<std::int32_t> best(static_cast<std::size_t>(std::max(counted, x.group_top_k)));
    for (std::int64_t group = 0; group < x.groups; ++group) {
        const auto member = [&](std::int64_t i) { return key(group * members + i); };
        choose(members, counted, member, any, best.data());
        for (std::int64_t i = 0; i < counted; ++i) sums[static_cast<std::size_t>(group)] += member(best[static_cast<std::size_t>(i)]);
    }
    const auto sum_of = [&](std::int64_t group) { return sums[static_cast<std::size_t>(group)]; };
    choose(x.groups, x.group_top_k, sum_of, any, best.data());
    std::vector<bool> taken(sums.size());
    for (std::int64_t i = 0; i < x.group_top_k; ++i) taken[static_cast<std::size_t>(best[static_cast<std::size_t>(i)])] = true;
    choose(
        x.expert_count, x.top_k, key, [&](std::int64_t i) { return bool(taken[static_cast<std::size_t>(i / members)]); }, chosen);
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
            } else {
                for (std::int64_t i = 0; i < x.expert_count; ++i) scores[i] = 1 / (1 + exponential(-Sum(logits[i])));
            }
            if (x.balanced) {
                for (std::int64_t slot = 0; slot < x.top_k; ++slot)
                    chosen[slot] = static_cast<std::int32_t>((row * x.top_k + slot) % x.expert_count);
            } else {
                const Sum* const bias = values<Sum>(x.bias);
                // Softmax scores round away differences that logits still have; but it is scores that biases are added to.
                const auto key = [&](std::int64_t i) {
                    const Sum own = x.score == RouterScore::softmax && bias == nullptr ? Sum(logits[i]) : scores[i];
                    return bias == nullptr ? own : own + bias[i];
                };
                choose_experts(x, key, chosen);
            }
            if (x.score == RouterScore::softmax && x.normalised) {
                Sum most = Sum(logits[chosen[0]]);
                for (std::int64_t slot = 1; slot < x.top_k; ++slot) most = std::max(most, Sum(logits[chosen[slot]]));
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) probabilities[slot] = exponential(Sum(logits[chosen[slot]]) - most);
            } else {
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) probabilities[slot] = scores[chosen[slot]];
                if (!x.normalised) continue;
            }
            const Sum sum = sum_over<Sum>(x.top_k, [&](std::int64_t slot) { return probabilities[slot]; });
            for (std::int64_t slot = 0; slot < x.top_k; ++slot) probabilities[slot] /= sum;
        }
    });
}

// Not normalised, p_i is the score: softmax over all gives d logit_j = s_j (dp_j - Σ p dp) for all j, with dp_j = 0 where j was not
// chosen, and a sigmoid d logit_i = p_i (1 - s_i) dp_i.
// p_i = s_i / S over the chosen. softmax: s_i = exp(logit_i), so d logit_i = p_i (dp_i - Σ p dp);
// sigmoid: d s_i = (dp_i - Σ p dp) / S and d logit_i = d s_i · s_i (1 - s_i) = p_i (1 - s_i) (dp_i - Σ p dp);
// a single sigmoid is its own probability, without the sum.
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
                const bool softmax = x.score == RouterScore::softmax;
                const Sum mean =
                    softmax || x.normalised ? sum_over<Sum>(x.top_k, [&](std::int64_t slot) { return p[slot] * dp[slot]; }) : Sum{0};
                if (softmax && !x.normalised) {
                    for (std::int64_t i = 0; i < x.expert_count; ++i) d_logits[i] = -scores[i] * mean;
                }
                for (std::int64_t slot = 0; slot < x.top_k; ++slot) {
                    const Sum slope = softmax ? Sum{1} : 1 - scores[chosen[slot]];
                    d_logits[chosen[slot]] = p[slot] * slope * (dp[slot] - mean);
                }
            }
        }
    });
}

void keep_within_capacity(model::Device& /*device*/, const model::CapacityArguments& x) {
    const std::int32_t* const experts = values<std::int32_t>(x.experts);
    std::int32_t* const kept = values<std::int32_t>(x.kept);
    std::copy(experts, experts + x.entries, kept);
    with_type(x.probabilities.dtype, [&]<class Element>() {
        std::vector<std::vector<std::int64_t>> choices(static_cast<std::size_t>(x.expert_count));
        for (std::int64_t i = 0; i < x.entries; ++i) choices[static_cast<std::size_t>(experts[i])].push_back(i);
        const auto weight = [&](std::int64_t i) {
            const auto p = static_cast<double>(values<Element>(x.probabilities)[i]);
            return std::isnan(p) ? -1 : p;  // sorting wants an order
        };
        for (auto& of_expert : choices) {
            if (std::ssize(of_expert) <= x.capacity) continue;
            std::ranges::stable_sort(of_expert, [&](std::int64_t a, std::int64_t b) { return weight(a) > weight(b); });
            for (auto i = static_cast<std::size_t>(x.capacity); i < of_expert.size(); ++i) kept[of_expert[i]] = -1;
        }
    });
}

void auxiliary_loss(model::Device& /*device*/, const model::AuxiliaryLossArguments& x) {
    const std::int32_t* const copies = values<std::int32_t>(x.copies);
    with_type(x.scores.dtype, [&]<class Element>() {
        double total = 0;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Element* const scores = values<Element>(x.scores) + row * x.expert_count;
            const auto score = [&](std::int64_t e) { return static_cast<double>(scores[e]); };
            const double sum = x.score == RouterScore::softmax ? 1 : sum_over<double>(x.expert_count, score);
            total += sum_over<double>(x.expert_count, [&](std::int64_t e) { return static_cast<double>(copies[e]) * score(e); }) / sum;
        }
        *values<double>(x.total) += x.factor * total;
    });
}

// softmax: d logit_e = factor · p_e (copies_e - Σ p copies). sigmoid, p = s / Σ s: the same times 1 - s_e, the slope of s_e
// over s_e.
void auxiliary_loss_backward(model::Device& /*device*/, const model::AuxiliaryLossArguments& x) {
    const std::int32_t* const copies = values<std::int32_t>(x.copies);
    with_type(x.scores.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Element* const scores = values<Element>(x.scores) + row * x.expert_count;
            Element* const into = values<Element>(x.d_logits) + row * x.expert_count;
            const bool softmax = x.score == RouterScore::softmax;
            const Sum sum = softmax ? Sum{1} : sum_over<Sum>(x.expert_count, [&](std::int64_t e) { return Sum(scores[e]); });
            const auto probability = [&](std::int64_t e) { return Sum(scores[e]) / sum; };
            const Sum mean = sum_over<Sum>(x.expert_count, [&](std::int64_t e) { return probability(e) * static_cast<Sum>(copies[e]); });
            for (std::int64_t e = 0; e < x.expert_count; ++e) {
                const Sum slope = probability(e) * (static_cast<Sum>(copies[e]) - mean) * (softmax ? Sum{1} : 1 - Sum(scores[e]));
                into[e] = Element(Sum(into[e]) + static_cast<Sum>(x.factor) * slope);
            }
        }
    });
}

void count_by_expert(model::Device& /*device*/, const model::CountByExpertArguments& x) {
    std::int32_t* const counts = values<std::int32_t>(x.counts);
    if (!x.adds) std::fill(counts, counts + x.expert_count, 0);
    for (std::int64_t i = 0; i < x.entries; ++i) {
        const std::int32_t expert = values<std::int32_t>(x.experts)[i];
        MGPLAN_ASSERT(expert < x.expert_count, "the chosen expert exists");
        if (expert >= 0) ++counts[expert];
    }
}

void sort_by_expert(model::Device& /*device*/, const model::SortByExpertArguments& x) {
    const std::int32_t* const counts = values<std::int32_t>(x.counts);
    std::vector<std::int64_t> next(static_cast<std::size_t>(x.expert_count));  // where the next copy of each expert goes
    for (std::size_t expert = 1; expert < next.size(); ++expert)
        next[expert] = next[expert - 1] + (x.capacity > 0 ? x.capacity : counts[expert - 1]);
    if (x.capacity > 0) std::fill_n(values<std::int32_t>(x.source), x.capacity * x.expert_count, -1);
    for (std::int64_t i = 0; i < x.entries; ++i) {
        const std::int32_t expert = values<std::int32_t>(x.experts)[i];
        if (expert >= 0) values<std::int32_t>(x.source)[next[static_cast<std::size_t>(expert)]++] = static_cast<std::int32_t>(i);
    }
}

void permute_rows(model::Device& /*device*/, const model::PermuteArguments& x) {
    const std::int64_t row_bytes = x.width * bytes_of(x.x.dtype);
    for (std::int64_t copy = 0; copy < x.copies; ++copy) {
        const std::int32_t entry = values<std::int32_t>(x.source)[copy];
        std::byte* const to = static_cast<std::byte*>(x.y.data) + copy * row_bytes;
        if (entry < 0) {
            std::memset(to, 0, static_cast<std::size_t>(row_bytes));
        } else {
            std::memcpy(to, static_cast<const std::byte*>(x.x.data) + entry / x.top_k * row_bytes, static_cast<std::size_t>(row_bytes));
        }
    }
}

void unpermute_rows(model::Device& /*device*/, const model::PermuteArguments& x) {
    std::int32_t* const inverse = values<std::int32_t>(x.inverse);
    std::fill(inverse, inverse + x.rows * x.top_k, -1);
    for (std::int64_t copy = 0; copy < x.copies; ++copy) {
        const std::int32_t entry = values<std::int32_t>(x.source)[copy];
        if (entry >= 0) inverse[entry] = static_cast<std::int32_t>(copy);
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
            const std::int32_t entry = values<std::int32_t>(x.source)[copy];
            values<Element>(x.y)[copy] = entry < 0 ? Element(0.0F) : values<Element>(x.x)[entry];
        }
    });
}

void unpermute_probabilities(model::Device& /*device*/, const model::PermuteArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Element* const out = values<Element>(x.y);
        std::fill(out, out + x.rows * x.top_k, Element(0.0F));
        for (std::int64_t copy = 0; copy < x.copies; ++copy) {
            const std::int32_t entry = values<std::int32_t>(x.source)[copy];
            if (entry >= 0) out[entry] = values<Element>(x.x)[copy];
        }
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
