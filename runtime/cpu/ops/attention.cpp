#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/cpu/ops/blas.hpp"
#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// Key places [begin, begin + length) with consecutive positions from `first`: a query sees a prefix of them, with a window
/// without the hidden begin of it.
struct KeyRange {
    std::int64_t begin = 0, first = 0, length = 0, window = 0;

    [[nodiscard]] std::int64_t visible(std::int64_t position) const { return std::clamp<std::int64_t>(position - first + 1, 0, length); }
    [[nodiscard]] std::int64_t hidden(std::int64_t position) const { return window > 0 ? visible(position - window) : 0; }
};

/// Returns the chunks of a slice; if it has one, or the second follows the first in position too, one range and an empty one.
std::array<KeyRange, 2> key_ranges(const model::AttentionSizes& sizes) {
    const model::Positions& keys = sizes.key_positions;
    const std::int64_t length = keys.chunk_length, window = sizes.window;
    if (keys.chunks == 1 || keys.first[1] == keys.first[0] + length) return {KeyRange{0, keys.first[0], keys.places(), window}, KeyRange{}};
    return {KeyRange{0, keys.first[0], length, window}, KeyRange{length, keys.first[1], length, window}};
}

/// Addresses the rows of a head in an array (places, sequences, kv heads, group): the first `members` heads of each group.
struct HeadRows {
    std::int64_t batch, kv_heads, members, width, group;

    [[nodiscard]] std::int64_t at(std::int64_t place, std::int64_t sequence, std::int64_t head) const {
        return ((place * batch + sequence) * kv_heads + head / members) * group + head % members * width;
    }
};

/// Addresses all arrays and their gradients.
struct AllHeadRows {
    HeadRows queries, keys, values, outputs;
    explicit AllHeadRows(const model::AttentionSizes& s)
        : queries{s.query_positions.batch, s.kv_heads, s.group_heads(), s.qk_dim, s.query_group()},
          keys{s.query_positions.batch, s.kv_heads, 1, s.qk_dim, s.key_group()},
          values{s.query_positions.batch, s.kv_heads, 1, s.v_dim, s.value_group()},
          outputs{s.query_positions.batch, s.kv_heads, s.group_heads(), s.v_dim, s.output_group()} {}
};

/// Copies the rows [place, place + places) of one sequence and head to a dense array.
template <class Element, class Sum>
void load(const model::Input& from, const HeadRows& rows, std::int64_t sequence, std::int64_t head, std::int64_t place, std::int64_t places,
          Sum* to) {
    for (std::int64_t i = 0; i < places; ++i) {
        const Element* const row = values<Element>(from) + rows.at(place + i, sequence, head);
        for (std::int64_t j = 0; j < rows.width; ++j) to[i * rows.width + j] = row[j];
    }
}

/// Copies a dense array to the rows [place, place + places) of one sequence and head.
template <class Element, class Sum>
void store(const Sum* from, const HeadRows& rows, std::int64_t sequence, std::int64_t head, std::int64_t place, std::int64_t places,
           const model::Output& to) {
    for (std::int64_t i = 0; i < places; ++i) {
        Element* const row = values<Element>(to) + rows.at(place + i, sequence, head);
        for (std::int64_t j = 0; j < rows.width; ++j) row[j] = Element(from[i * rows.width + j]);
    }
}

/// A block of queries of one sequence and head, and how many keys of each range at least one of them sees.
struct QueryBlock {
    std::int64_t place, places;
    std::array<std::int64_t, 2> widest;
};

template <class Work>
void for_each_query_block(const model::AttentionSizes& sizes, const std::array<KeyRange, 2>& ranges, Work work) {
    const std::int64_t places = sizes.query_positions.places();
    for (std::int64_t place = 0; place < places; place += sizes.block) {
        QueryBlock block{place, std::min(sizes.block, places - place), {0, 0}};
        for (std::int64_t i = place; i < place + block.places; ++i) {
            for (std::size_t r = 0; r < 2; ++r) {
                block.widest[r] = std::max(block.widest[r], ranges[r].visible(sizes.query_positions.at(i)));
            }
        }
        work(block);
    }
}

/// scores (block, keys) = scale · queries · keysᵀ, as far as any query of the block sees.
template <class Sum>
void multiply_scores(const QueryBlock& block, const std::array<KeyRange, 2>& ranges, const Sum* queries, const Sum* keys,
                     std::int64_t width, Sum scale, Sum* scores, std::int64_t key_places) {
    for (std::size_t r = 0; r < 2; ++r) {
        gemm(false, true, block.places, block.widest[r], width, scale, Matrix<const Sum>{queries, width},
             Matrix<const Sum>{keys + ranges[r].begin * width, width}, Sum{0}, Matrix<Sum>{scores + ranges[r].begin, key_places});
    }
}

/// cap · tanh(score / cap) in place, as far as any query of the block sees.
template <class Sum>
void cap_scores(const QueryBlock& block, const std::array<KeyRange, 2>& ranges, double soft_cap, Sum* scores, std::int64_t key_places) {
    if (soft_cap == 0) return;
    const Sum cap = static_cast<Sum>(soft_cap);
    for (std::int64_t i = 0; i < block.places; ++i) {
        for (std::size_t r = 0; r < 2; ++r) {
            Sum* const row = scores + i * key_places + ranges[r].begin;
            for (std::int64_t j = 0; j < block.widest[r]; ++j) row[j] = cap * std::tanh(row[j] / cap);
        }
    }
}

/// out (block, width) = weights (block, keys) · rows (keys, width).
template <class Sum>
void weigh_rows(const QueryBlock& block, const std::array<KeyRange, 2>& ranges, const Sum* weights, std::int64_t key_places,
                const Sum* rows, std::int64_t width, Sum* out) {
    for (std::size_t r = 0; r < 2; ++r) {
        gemm(false, false, block.places, width, block.widest[r], Sum{1}, Matrix<const Sum>{weights + ranges[r].begin, key_places},
             Matrix<const Sum>{rows + ranges[r].begin * width, width}, Sum(r == 0 ? 0 : 1), Matrix<Sum>{out, width});
    }
}

/// sums (keys, width) += weightsᵀ (keys, block) · rows (block, width).
template <class Sum>
void collect_rows(const QueryBlock& block, const std::array<KeyRange, 2>& ranges, const Sum* weights, std::int64_t key_places,
                  const Sum* rows, std::int64_t width, Sum* sums) {
    for (std::size_t r = 0; r < 2; ++r) {
        gemm(true, false, block.widest[r], width, block.places, Sum{1}, Matrix<const Sum>{weights + ranges[r].begin, key_places},
             Matrix<const Sum>{rows, width}, Sum{1}, Matrix<Sum>{sums + ranges[r].begin * width, width});
    }
}

/// Turns a row of scores into probabilities, zeros where the query does not see; returns the log-sum-exp.
template <class Sum>
Sum softmax_row(Sum* scores, const std::array<KeyRange, 2>& ranges, const QueryBlock& block, std::int64_t position) {
    constexpr Sum kNothing = -std::numeric_limits<Sum>::infinity();
    Sum maximum = kNothing, sum = 0;
    for (const auto& range : ranges) {
        const std::int64_t hidden = range.hidden(position), seen = range.visible(position) - hidden;
        maximum = std::max(maximum, maximum_over<Sum>(seen, [&](std::int64_t j) { return scores[range.begin + hidden + j]; }));
    }
    for (std::size_t r = 0; r < 2; ++r) {
        Sum* const row = scores + ranges[r].begin;
        const std::int64_t hidden = ranges[r].hidden(position), visible = ranges[r].visible(position);
        std::fill(row, row + hidden, Sum{0});
        for (std::int64_t j = hidden; j < visible; ++j) row[j] = exponential(row[j] - maximum);
        sum += sum_over<Sum>(visible - hidden, [&](std::int64_t j) { return row[hidden + j]; });
        std::fill(row + visible, row + block.widest[r], Sum{0});
    }
    if (sum == 0) return kNothing;  // sees no key
    for (std::size_t r = 0; r < 2; ++r) {
        Sum* const row = scores + ranges[r].begin;
        for (std::int64_t j = 0; j < block.widest[r]; ++j) row[j] /= sum;
    }
    return maximum + std::log(sum);
}

template <class Element>
void forward(const model::AttentionArguments& x) {
    using Sum = Compute<Element>;
    const auto& s = x.sizes;
    const std::int64_t batch = s.query_positions.batch, key_places = s.key_positions.places(), group = s.group_heads();
    const auto ranges = key_ranges(s);
    const AllHeadRows lie(s);
    Sum* const keys = values<Sum>(x.scratch_keys);
    Sum* const rows = values<Sum>(x.scratch_values);
    Sum* const queries = values<Sum>(x.scratch_queries);
    Sum* const outputs = values<Sum>(x.scratch_outputs);
    Sum* const scores = values<Sum>(x.scratch_scores);
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
            if (head % group == 0) {
                load<Element>(x.k, lie.keys, sequence, head / group, 0, key_places, keys);
                load<Element>(x.v, lie.values, sequence, head / group, 0, key_places, rows);
            }
            for_each_query_block(s, ranges, [&](const QueryBlock& block) {
                load<Element>(x.q, lie.queries, sequence, head, block.place, block.places, queries);
                multiply_scores(block, ranges, queries, keys, s.qk_dim, static_cast<Sum>(s.scale), scores, key_places);
                cap_scores(block, ranges, s.soft_cap, scores, key_places);
                for (std::int64_t i = 0; i < block.places; ++i) {
                    const std::int64_t place = block.place + i;
                    values<Sum>(x.log_sum_exp)[(place * batch + sequence) * s.heads + head] =
                        softmax_row(scores + i * key_places, ranges, block, s.query_positions.at(place));
                }
                weigh_rows(block, ranges, scores, key_places, rows, s.v_dim, outputs);
                store<Element>(outputs, lie.outputs, sequence, head, block.place, block.places, x.output);
            });
        }
    }
}

// With P = exp(scores - log-sum-exp) and D = rowsum(dO · O) (FlashAttention-2, arXiv 2307.08691, algorithm 2):
// dV = Pᵀ dO, dP = dO Vᵀ, dS = P · (dP - D), dQ = scale · dS K, dK = scale · dSᵀ Q.
template <class Element>
void backward(const model::AttentionBackwardArguments& x) {
    using Sum = Compute<Element>;
    const auto& s = x.sizes;
    const std::int64_t batch = s.query_positions.batch, key_places = s.key_positions.places(), group = s.group_heads();
    const auto ranges = key_ranges(s);
    const AllHeadRows lie(s);
    const Sum scale = static_cast<Sum>(s.scale);
    Sum* const keys = values<Sum>(x.scratch_keys);
    Sum* const rows = values<Sum>(x.scratch_values);
    Sum* const queries = values<Sum>(x.scratch_queries);
    Sum* const d_outputs = values<Sum>(x.scratch_outputs);
    Sum* const scores = values<Sum>(x.scratch_scores);
    Sum* const d_keys = values<Sum>(x.scratch_d_keys);
    Sum* const d_rows = values<Sum>(x.scratch_d_values);
    Sum* const d_queries = values<Sum>(x.scratch_d_queries);
    Sum* const d_scores = values<Sum>(x.scratch_d_scores);
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
            if (head % group == 0) {
                load<Element>(x.k, lie.keys, sequence, head / group, 0, key_places, keys);
                load<Element>(x.v, lie.values, sequence, head / group, 0, key_places, rows);
                std::fill(d_keys, d_keys + key_places * s.qk_dim, Sum{0});
                std::fill(d_rows, d_rows + key_places * s.v_dim, Sum{0});
            }
            for_each_query_block(s, ranges, [&](const QueryBlock& block) {
                load<Element>(x.q, lie.queries, sequence, head, block.place, block.places, queries);
                load<Element>(x.d_output, lie.outputs, sequence, head, block.place, block.places, d_outputs);
                multiply_scores(block, ranges, queries, keys, s.qk_dim, scale, scores, key_places);
                cap_scores(block, ranges, s.soft_cap, scores, key_places);
                multiply_scores(block, ranges, d_outputs, rows, s.v_dim, Sum{1}, d_scores, key_places);
                for (std::int64_t i = 0; i < block.places; ++i) {
                    const std::int64_t place = block.place + i, row = (place * batch + sequence) * s.heads + head;
                    const Sum log_sum_exp = values<Sum>(x.log_sum_exp)[row];
                    const Element* const output = values<Element>(x.output) + row * s.v_dim;
                    const Sum* const d_output = d_outputs + i * s.v_dim;
                    const Sum share = sum_over<Sum>(s.v_dim, [&](std::int64_t j) { return d_output[j] * Sum(output[j]); });
                    for (std::size_t r = 0; r < 2; ++r) {
                        Sum* const p = scores + i * key_places + ranges[r].begin;
                        Sum* const ds = d_scores + i * key_places + ranges[r].begin;
                        const std::int64_t position = s.query_positions.at(place);
                        const std::int64_t hidden = ranges[r].hidden(position), visible = ranges[r].visible(position);
                        std::fill(p, p + hidden, Sum{0});
                        std::fill(ds, ds + hidden, Sum{0});
                        // A capped score's slope is 1 - (score / cap)².
                        for (std::int64_t j = hidden; j < visible && s.soft_cap > 0; ++j) {
                            const Sum level = p[j] / static_cast<Sum>(s.soft_cap);
                            p[j] = exponential(p[j] - log_sum_exp);
                            ds[j] = p[j] * (ds[j] - share) * scale * (1 - level * level);
                        }
                        for (std::int64_t j = hidden; j < visible && s.soft_cap == 0; ++j) {
                            p[j] = exponential(p[j] - log_sum_exp);
                            ds[j] = p[j] * (ds[j] - share) * scale;
                        }
                        std::fill(p + visible, p + block.widest[r], Sum{0});
                        std::fill(ds + visible, ds + block.widest[r], Sum{0});
                    }
                }
                collect_rows(block, ranges, scores, key_places, d_outputs, s.v_dim, d_rows);
                weigh_rows(block, ranges, d_scores, key_places, keys, s.qk_dim, d_queries);
                collect_rows(block, ranges, d_scores, key_places, queries, s.qk_dim, d_keys);
                store<Element>(d_queries, lie.queries, sequence, head, block.place, block.places, x.dq);
            });
            if (head % group == group - 1) {
                store<Element>(d_keys, lie.keys, sequence, head / group, 0, key_places, x.dk);
                store<Element>(d_rows, lie.values, sequence, head / group, 0, key_places, x.dv);
            }
        }
    }
}

}  // namespace

void attention(model::Device& /*device*/, const model::AttentionArguments& x) {
    vectorised([&] { with_type(x.q.dtype, [&]<class Element>() { forward<Element>(x); }); });
}

void attention_backward(model::Device& /*device*/, const model::AttentionBackwardArguments& x) {
    vectorised([&] { with_type(x.q.dtype, [&]<class Element>() { backward<Element>(x); }); });
}

void merge_attention(model::Device& /*device*/, const model::MergeAttentionArguments& x) {
    vectorised([&] {
        with_type(x.into.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            constexpr Sum kNothing = -std::numeric_limits<Sum>::infinity();
            for (std::int64_t row = 0; row < x.rows; ++row) {
                Sum& kept = values<Sum>(x.into_log_sum_exp)[row];
                const Sum other = values<Sum>(x.other_log_sum_exp)[row];
                if (other == kNothing) continue;
                const Sum larger = std::max(kept, other);
                const Sum total = larger + std::log(std::exp(kept - larger) + std::exp(other - larger));
                const Sum kept_weight = std::exp(kept - total), other_weight = std::exp(other - total);
                Element* const into = values<Element>(x.into) + row * x.width;
                const Element* const from = values<Element>(x.other) + row * x.width;
                for (std::int64_t i = 0; i < x.width; ++i) into[i] = Element(Sum(into[i]) * kept_weight + Sum(from[i]) * other_weight);
                kept = total;
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
