#pragma once
// The kernels between the products of a delta rule by chunks; delta_rule.hpp defines the letters of the formulas.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

using model::kMostRulePlaces;

/// Where the parts of a delta rule lie; from `dy` on in the backward alone.
template <class Element>
struct RuleParts {
    using Sum = Compute<Element>;
    model::DeltaRuleSizes sizes;
    const Element *mixed, *gates, *raw_decays, *step_bias, *log_decay;
    std::int64_t gate_pitch, beta_begin, decay_pitch, decay_begin;
    Sum* inverse_norms;
    const Element* dy = nullptr;
    Element *dx = nullptr, *d_gates = nullptr, *d_decays = nullptr;
    Sum *unit_gradients = nullptr, *sums = nullptr;

    [[nodiscard]] MGPLAN_BOTH std::int64_t per_key() const { return sizes.value_heads / sizes.key_heads; }
    /// `which`: 0 the query, 1 the key.
    [[nodiscard]] MGPLAN_BOTH std::int64_t vector_at(std::int64_t row, std::int64_t which, std::int64_t key_head) const {
        return row * sizes.width() + which * sizes.keys() + key_head * sizes.key_dim;
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t norm_at(std::int64_t row, std::int64_t which, std::int64_t key_head) const {
        return (row * 2 + which) * sizes.key_heads + key_head;
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t value_at(std::int64_t row, std::int64_t head) const {
        return row * sizes.width() + 2 * sizes.keys() + head * sizes.value_dim;
    }
    [[nodiscard]] MGPLAN_BOTH Sum query_scale() const { return 1 / square_root(static_cast<Sum>(sizes.key_dim)); }
    [[nodiscard]] MGPLAN_BOTH Sum strength(std::int64_t row, std::int64_t head) const {
        return static_cast<Sum>(sizes.strength) / (1 + exponential(-Sum(gates[row * gate_pitch + beta_begin + head])));
    }
    [[nodiscard]] MGPLAN_BOTH Sum strength_slope(Sum strength) const {
        return strength * (1 - strength / static_cast<Sum>(sizes.strength));
    }
    /// `decay`: of all the heads'.
    [[nodiscard]] MGPLAN_BOTH Sum raw_decay(std::int64_t row, std::int64_t decay) const {
        return Sum(raw_decays[row * decay_pitch + decay_begin + decay]) + Sum(step_bias[decay]);
    }
    [[nodiscard]] MGPLAN_BOTH Sum rate(std::int64_t head) const { return -exponential(Sum(log_decay[head])); }
};

/// Whole chunks, or the last, that are worked on at once; a "matrix" is one of them in one sequence, a "team" one of its value heads.
/// Arrays are those of model::RuleWorkspace, those of the backward nullptr in a forward.
template <class Element>
struct RuleBlock {
    using Sum = Compute<Element>;
    RuleParts<Element> rule;
    std::int64_t begin = 0, count = 0, length = 0;  ///< first place; chunks and their places
    std::int64_t first = 0;                         ///< chunk
    Sum *strengths = nullptr, *decays = nullptr, *scores = nullptr, *outputs = nullptr;
    Element *units = nullptr, *reads = nullptr, *left = nullptr, *found = nullptr, *values = nullptr;
    Element *inverses = nullptr, *remainders = nullptr, *weights = nullptr, *states = nullptr, *written = nullptr;
    Element *gradients = nullptr, *d_states = nullptr, *pairs = nullptr;
    Sum *along = nullptr, *from_states = nullptr, *from_pairs = nullptr, *to_states = nullptr, *to_pairs = nullptr;
    Sum *strength_sums = nullptr, *decay_sums = nullptr, *end_sums = nullptr;

    [[nodiscard]] MGPLAN_BOTH std::int64_t matrices() const { return count * rule.sizes.batch; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t teams() const { return matrices() * rule.sizes.value_heads; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t rows() const { return matrices() * length; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t row(std::int64_t matrix, std::int64_t i) const {
        const auto [chunk, sequence] = row_column(matrix, rule.sizes.batch);
        return (begin + chunk * length + i) * rule.sizes.batch + sequence;
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t team(std::int64_t matrix, std::int64_t head) const {
        return matrix * rule.sizes.value_heads + head;
    }
    /// Logarithm of what is left at place i of what was before the chunk, of row d of the state.
    [[nodiscard]] MGPLAN_BOTH Sum decay(std::int64_t team, std::int64_t i, std::int64_t d) const {
        const std::int64_t of_head = rule.sizes.decays_of_head();
        return decays[(team * length + i) * of_head + (of_head > 1 ? d : 0)];
    }
    /// With a decay for each head: what is left at place i of what place j wrote, j up to i. Scores by channels have it in them.
    [[nodiscard]] MGPLAN_BOTH Sum kept(std::int64_t team, std::int64_t i, std::int64_t j) const {
        return rule.sizes.channel_decays ? Sum{1} : exponential(decay(team, i, 0) - decay(team, j, 0));
    }
    /// The first of the two matrices of scores, keys with keys; queries with keys are length² further.
    [[nodiscard]] MGPLAN_BOTH const Sum* scores_of(std::int64_t team) const {
        const std::int64_t of = rule.sizes.channel_decays ? team : team / rule.per_key();
        return scores + of * 2 * length * length;
    }
};

/// Strengths and summed decays of one team.
template <class Element>
struct RuleDecays {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const RuleParts<Element>& rule = block.rule;
        const auto [matrix_of, head_of] = row_column(index, rule.sizes.value_heads);
        const std::int64_t matrix = matrix_of, head = head_of, of_head = rule.sizes.decays_of_head(), length = block.length;
        Sum* const decays = block.decays + index * length * of_head;
        team.each(length, [&](std::int64_t i) { block.strengths[index * length + i] = rule.strength(block.row(matrix, i), head); });
        team.each(length * of_head, [&](std::int64_t at) {
            const auto [i, d] = row_column(at, of_head);
            decays[at] = rule.rate(head) * softplus(rule.raw_decay(block.row(matrix, i), head * of_head + d));
        });
        team.barrier();
        team.each(of_head, [&](std::int64_t d) {
            Sum total = 0;
            for (std::int64_t i = 0; i < length; ++i) {
                total += decays[i * of_head + d];
                decays[i * of_head + d] = total;
            }
        });
    }
};

/// For one place and key head: lengths of its query and key, and the factors of products made of both, for each value head it serves.
template <class Element>
struct RuleVectors {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const RuleParts<Element>& rule = block.rule;
        const auto [place, key_head_of] = row_column(index, rule.sizes.key_heads);
        const auto [matrix, i] = row_column(place, block.length);
        const std::int64_t key_head = key_head_of, row = block.row(matrix, i), width = rule.sizes.key_dim, map = block.length * width;
        const Element* const query = rule.mixed + rule.vector_at(row, 0, key_head);
        const Element* const key = rule.mixed + rule.vector_at(row, 1, key_head);
        const Sum of_query = inverse_length(team, query), of_key = inverse_length(team, key);
        team.once([&] {
            rule.inverse_norms[rule.norm_at(row, 0, key_head)] = of_query;
            rule.inverse_norms[rule.norm_at(row, 1, key_head)] = of_key;
        });
        for (std::int64_t head = key_head * rule.per_key(); head < (key_head + 1) * rule.per_key(); ++head) {
            const std::int64_t of = block.team(matrix, head), at = of * map + i * width, last = block.length - 1, here = i;
            const Sum strength = block.strengths[of * block.length + i];
            team.each(width, [&](std::int64_t d) {
                const Sum q = Sum(query[d]) * of_query * rule.query_scale(), k = Sum(key[d]) * of_key;
                const Sum decay = block.decay(of, here, d), from_begin = exponential(decay);
                block.units[at + of * map + d] = Element(k);
                block.units[at + (of + 1) * map + d] = Element(q);
                block.reads[at + of * map + d] = Element(from_begin * q);
                block.left[at + d] = Element(exponential(block.decay(of, last, d) - decay) * k);
                block.found[at + d] = Element(strength * from_begin * k);
            });
        }
    }

private:
    template <class Team>
    MGPLAN_BOTH Sum inverse_length(const Team& team, const Element* vector) const {
        return 1 / square_root(team.reduce(block.rule.sizes.key_dim, Sum{0}, Add{}, [&](std::int64_t d) {
                   return Sum(vector[d]) * Sum(vector[d]);
               }) + static_cast<Sum>(1e-6));
    }
};

/// Values by strengths; in a backward a copy of dy.
template <class Element>
struct RuleValues {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    /// The place of value `index` of the block's rows: its row and head, and the first value of a line.
    struct Place {
        std::int64_t row, head, column, team, i;
    };
    [[nodiscard]] MGPLAN_BOTH static Place place(const RuleBlock<Element>& block, std::int64_t index) {
        const auto [rest, column] = row_column(index, block.rule.sizes.value_dim);
        const auto [of_rows, head] = row_column(rest, block.rule.sizes.value_heads);
        const auto [matrix, i] = row_column(of_rows, block.length);
        return {block.row(matrix, i), head, column, block.team(matrix, head), i};
    }

    template <int N>
    struct Loaded {
        Pack<Element, N> value, dy;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t index) const {
        const Place at = place(block, index);
        const model::DeltaRuleSizes& s = block.rule.sizes;
        Loaded<N> loaded{};
        loaded.value = load_pack<N>(block.rule.mixed + block.rule.value_at(at.row, at.head) + at.column);
        if (block.gradients != nullptr) loaded.dy = load_pack<N>(block.rule.dy + at.row * s.values() + at.head * s.value_dim + at.column);
        return loaded;
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Loaded<N>& loaded) const {
        const Place at = place(block, index);
        const std::int64_t width = block.rule.sizes.value_dim;
        const Sum strength = block.strengths[at.team * block.length + at.i];
        Pack<Element, N> result;
        for (int n = 0; n < N; ++n) result[n] = Element(strength * Sum(loaded.value[n]));
        store_pack<N>(block.values + (at.team * block.length + at.i) * width + at.column, result);
        if (block.gradients != nullptr)
            store_pack<N>(block.gradients + ((at.team * 3 + 1) * block.length + at.i) * width + at.column, loaded.dy);
    }
};

/// With a decay for each channel: products of keys, and of queries, with the keys of places up to theirs, each channel decayed in between.
template <class Element>
struct RuleChannelScores {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const std::int64_t length = block.length, width = block.rule.sizes.key_dim, map = length * width;
        const auto [rest, j_of] = row_column(index, length);
        const auto [team, i_of] = row_column(rest, length);
        const std::int64_t i = i_of, j = j_of;
        const Element* const keys = block.units + team * 2 * map;
        Sum of_key = 0, of_query = 0;
        for (std::int64_t d = 0; j <= i && d < width; ++d) {
            const Sum key = exponential(block.decay(team, i, d) - block.decay(team, j, d)) * Sum(keys[j * width + d]);
            of_key += key * Sum(keys[i * width + d]);
            of_query += key * Sum(keys[map + i * width + d]);
        }
        Sum* const to = block.scores + team * 2 * length * length + i * length + j;
        to[0] = of_key;
        to[length * length] = of_query;
    }
};

/// The inverse X of the unit lower triangular matrix I + A of one team, row by row: x_ij = -(a_ij + sum of a_in x_nj, j < n < i). Also the
/// weights M of new values in outputs. Scores beyond the diagonal are not used.
template <class Element>
struct RuleInverse {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const std::int64_t length = block.length;
        Sum* const matrix = team.template shared<Sum, kMostRulePlaces * kMostRulePlaces>();
        Sum* const line = team.template shared<Sum, kMostRulePlaces>();
        const Sum* const scores = block.scores_of(index);
        team.each(length * length, [&](std::int64_t at) {
            const auto [i, j] = row_column(at, length);
            const Sum kept = j <= i ? block.kept(index, i, j) : Sum{0};
            matrix[at] = j < i ? block.strengths[index * length + i] * kept * scores[at] : Sum{0};
            block.weights[index * length * length + at] = Element(j <= i ? kept * scores[length * length + at] : Sum{0});
        });
        team.barrier();
        for (std::int64_t i = 1; i < length; ++i) {
            team.each(i, [&](std::int64_t j) {
                Sum sum = matrix[i * length + j];
                for (std::int64_t n = j + 1; n < i; ++n) sum += matrix[i * length + n] * matrix[n * length + j];
                line[j] = -sum;
            });
            team.barrier();
            team.each(i, [&](std::int64_t j) { matrix[i * length + j] = line[j]; });
            team.barrier();
        }
        team.each(length * length, [&](std::int64_t at) {
            const auto [i, j] = row_column(at, length);
            const Sum exact = j == i ? Sum{1} : matrix[at];
            const Element rounded(exact);
            block.inverses[index * length * length + at] = rounded;
            if (block.remainders != nullptr) block.remainders[index * length * length + at] = Element(exact - Sum(rounded));
        });
    }
};

/// The states before a chunk, or their gradients after it: rounded as factors, and decayed through the chunk; its products are added to
/// the latter.
template <class Element>
struct RuleCarry {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;
    std::int64_t first_team;
    const Sum* from;
    Sum* to;
    Element* rounded;

    template <int N>
    MGPLAN_BOTH Pack<Sum, N> load(std::int64_t index) const {
        return load_pack<N>(from + index);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Pack<Sum, N>& state) const {
        const auto [rest, column] = row_column(index, block.rule.sizes.value_dim);
        const auto [team, d] = row_column(rest, block.rule.sizes.key_dim);
        const Sum kept = exponential(block.decay(first_team + team, block.length - 1, d));
        Pack<Element, N> factors;
        Pack<Sum, N> decayed;
        for (int n = 0; n < N; ++n) {
            factors[n] = Element(state[n]);
            decayed[n] = kept * state[n];
        }
        store_pack<N>(rounded + index, factors);
        store_pack<N>(to + index, decayed);
    }
};

/// Outputs to their rows.
template <class Element>
struct RuleOutput {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;
    Element* y;

    template <int N>
    MGPLAN_BOTH Pack<Sum, N> load(std::int64_t index) const {
        const auto at = RuleValues<Element>::place(block, index);
        return load_pack<N>(block.outputs + (at.team * block.length + at.i) * block.rule.sizes.value_dim + at.column);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Pack<Sum, N>& outputs) const {
        const auto at = RuleValues<Element>::place(block, index);
        const model::DeltaRuleSizes& s = block.rule.sizes;
        Pack<Element, N> rounded;
        for (int n = 0; n < N; ++n) rounded[n] = Element(outputs[n]);
        store_pack<N>(y + at.row * s.values() + at.head * s.value_dim + at.column, rounded);
    }
};

/// Gradients of the scores of one place of one team, keys with keys and queries with keys, with what lies between scores and products; and
/// the strength's share from the former.
template <class Element>
struct RulePairs {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [of, i_of] = row_column(index, block.length);
        const std::int64_t head_of = of, i = i_of, length = block.length, pair = length * length;
        const Sum strength = block.strengths[index];
        const Sum* const along = block.along + head_of * 2 * pair + i * length;
        const Sum* const scores = block.scores_of(head_of) + i * length;
        Element* const pairs = block.pairs + head_of * 2 * pair + i * length;
        const Sum sum = team.reduce(length, Sum{0}, Add{}, [&](std::int64_t j) {
            const Sum kept = j <= i ? block.kept(head_of, i, j) : Sum{0};
            const Sum of_keys = j < i ? -kept * along[j] : Sum{0};
            pairs[j] = Element(strength * of_keys);
            pairs[pair + j] = Element(j <= i ? kept * along[pair + j] : Sum{0});
            return j < i ? of_keys * scores[j] : Sum{0};
        });
        team.once([&] { block.strength_sums[index] = sum; });
    }
};

/// With a decay for each channel: what products of those gradients with keys and queries are with one decay for each head.
template <class Element>
struct RuleChannelPairs {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const std::int64_t length = block.length, width = block.rule.sizes.key_dim, map = length * width, pair = length * length;
        const auto [rest, d_of] = row_column(index, width);
        const auto [team, i_of] = row_column(rest, length);
        const std::int64_t i = i_of, d = d_of;
        const Element* const units = block.units + team * 2 * map + d;
        const Element* const pairs = block.pairs + team * 2 * pair;
        const Sum decay = block.decay(team, i, d);
        Sum of_key = 0, of_query = 0, written = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
            const Sum key = exponential(decay - block.decay(team, j, d)) * Sum(units[j * width]);
            of_key += Sum(pairs[i * length + j]) * key;
            of_query += Sum(pairs[pair + i * length + j]) * key;
        }
        for (std::int64_t n = i; n < length; ++n) {
            const Sum reading =
                Sum(pairs[n * length + i]) * Sum(units[n * width]) + Sum(pairs[pair + n * length + i]) * Sum(units[map + n * width]);
            written += exponential(block.decay(team, n, d) - decay) * reading;
        }
        Sum* const from = block.from_pairs + team * 2 * map + i * width + d;
        from[0] = of_key;
        from[map] = of_query;
        block.to_pairs[team * map + i * width + d] = written;
    }
};

/// Gradients of one channel of a place's key and query.
template <class Element>
struct RuleSlopes {
    using Sum = Compute<Element>;
    Sum query;          ///< of the query over the root of key_dim
    Sum reads, writes;  ///< of the key that finds, of the key that is written under
    Sum at_end;         ///< of `writes` what comes through the state at the chunk's end
    Sum found;          ///< of the key by strength that finds in the state in front of the chunk
};
template <class Element>
MGPLAN_BOTH RuleSlopes<Element> rule_slopes(const RuleBlock<Element>& block, std::int64_t team, std::int64_t i, std::int64_t d) {
    using Sum = Compute<Element>;
    const std::int64_t width = block.rule.sizes.key_dim, map = block.length * width, at = team * map + i * width + d;
    const Sum decay = block.decay(team, i, d), from_begin = exponential(decay);
    const Sum to_end = exponential(block.decay(team, block.length - 1, d) - decay);
    RuleSlopes<Element> slopes;
    slopes.found = -from_begin * block.from_states[at + team * map];
    slopes.query = from_begin * block.from_states[at + (team + 1) * map] + block.from_pairs[at + (team + 1) * map];
    slopes.reads = block.strengths[team * block.length + i] * slopes.found + block.from_pairs[at + team * map];
    slopes.at_end = to_end * block.to_states[at];
    slopes.writes = slopes.at_end + block.to_pairs[at];
    return slopes;
}

/// For one place and head: the gradients of its value and strength, and those of its summed decays, a difference of sums that are added
/// up along a chunk: all use the products' own, rounded factors.
template <class Element>
struct RuleValueGradients {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const RuleParts<Element>& rule = block.rule;
        const model::DeltaRuleSizes& s = rule.sizes;
        const auto [of_head, i_of] = row_column(index, block.length);
        const auto [matrix, head_of] = row_column(of_head, s.value_heads);
        const std::int64_t of = of_head, i = i_of, head = head_of, row = block.row(matrix, i), map = block.length * s.key_dim;
        const Sum strength = block.strengths[index];
        const Element* const slope = block.gradients + (of * 3 * block.length + i) * s.value_dim;
        const Sum of_values = team.reduce(s.value_dim, Sum{0}, Add{}, [&](std::int64_t c) {
            const std::int64_t at = rule.value_at(row, head) + c;
            rule.dx[at] = Element(strength * Sum(slope[c]));
            return Sum(slope[c]) * Sum(rule.mixed[at]);
        });
        const Element* const keys = block.units + of * 2 * map + i * s.key_dim;
        const Sum of_keys =
            team.reduce(s.key_dim, Sum{0}, Add{}, [&](std::int64_t d) { return Sum(keys[d]) * rule_slopes(block, of, i, d).found; });
        const auto d_end = [&](std::int64_t d) { return Sum(keys[d]) * rule_slopes(block, of, i, d).at_end; };
        const auto d_decay = [&](std::int64_t d) {
            const RuleSlopes<Element> slopes = rule_slopes(block, of, i, d);
            return Sum(keys[map + d]) * slopes.query + Sum(keys[d]) * (slopes.reads - slopes.writes);
        };
        if (s.channel_decays) {
            team.each(s.key_dim, [&](std::int64_t d) {
                block.decay_sums[index * s.key_dim + d] = d_decay(d);
                block.end_sums[index * s.key_dim + d] = d_end(d);
            });
        } else {
            const Sum decay_sum = team.reduce(s.key_dim, Sum{0}, Add{}, d_decay), end_sum = team.reduce(s.key_dim, Sum{0}, Add{}, d_end);
            team.once([&] {
                block.decay_sums[index] = decay_sum;
                block.end_sums[index] = end_sum;
            });
        }
        team.once([&] {
            rule.d_gates[row * rule.gate_pitch + rule.beta_begin + head] =
                Element((of_values + of_keys + block.strength_sums[index]) * rule.strength_slope(strength));
        });
    }
};

/// For one place and key head: gradients of its query and key, through the division by their lengths.
template <class Element>
struct RuleVectorGradients {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const RuleParts<Element>& rule = block.rule;
        const auto [place, key_head_of] = row_column(index, rule.sizes.key_heads);
        const auto [matrix_of, i_of] = row_column(place, block.length);
        const std::int64_t key_head = key_head_of, matrix = matrix_of, i = i_of, row = block.row(matrix, i), width = rule.sizes.key_dim;
        for (std::int64_t which = 0; which < 2; ++which) {
            const std::int64_t norm = rule.norm_at(row, which, key_head), vector = rule.vector_at(row, which, key_head);
            const Sum inverse = rule.inverse_norms[norm];
            Sum* const unit_gradient = rule.unit_gradients + norm * width;
            const Sum along = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t d) {
                Sum sum = 0;
                for (std::int64_t head = key_head * rule.per_key(); head < (key_head + 1) * rule.per_key(); ++head) {
                    const RuleSlopes<Element> slopes = rule_slopes(block, block.team(matrix, head), i, d);
                    sum += which == 0 ? slopes.query * rule.query_scale() : slopes.reads + slopes.writes;
                }
                unit_gradient[d] = sum;
                return sum * Sum(rule.mixed[vector + d]) * inverse;
            });
            team.each(width, [&](std::int64_t d) {
                rule.dx[vector + d] = Element(inverse * (unit_gradient[d] - Sum(rule.mixed[vector + d]) * inverse * along));
            });
        }
    }
};

/// Gradients of the raw decays of one team, and its part of the sums of dt_bias and A_log.
template <class Element>
struct RuleDecayGradients {
    using Sum = Compute<Element>;
    RuleBlock<Element> block;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const RuleParts<Element>& rule = block.rule;
        const model::DeltaRuleSizes& s = rule.sizes;
        const auto [matrix_of, head_of] = row_column(index, s.value_heads);
        const std::int64_t matrix = matrix_of, head = head_of, of_head = s.decays_of_head(), length = block.length;
        const std::int64_t size = s.key_dim * s.value_dim;
        const Element *const state = block.states + index * size, *const slope = block.d_states + index * size;
        const auto through_state = [&](std::int64_t k) { return Sum(state[k]) * Sum(slope[k]); };
        const Sum of_all = s.channel_decays ? Sum{0} : team.reduce(size, Sum{0}, Add{}, through_state);
        Sum* const to = rule.sums + (block.first * s.batch + matrix) * (s.decays() + s.value_heads);
        const Sum rate_sum = team.reduce(of_head, Sum{0}, Add{}, [&](std::int64_t d) {
            Sum of_row = of_all;
            for (std::int64_t c = 0; s.channel_decays && c < s.value_dim; ++c) of_row += through_state(d * s.value_dim + c);
            Sum sum = exponential(block.decay(index, length - 1, d)) * of_row;
            for (std::int64_t i = 0; i < length; ++i) sum += block.end_sums[(index * length + i) * of_head + d];
            return through_places(matrix, index, head, d, sum, to);
        });
        team.once([&] { to[s.decays() + head] = rate_sum; });
    }

private:
    /// From the chunk's end to its begin, where `sum` is the gradient of the last summed decay that reaches all of them.
    MGPLAN_BOTH Sum through_places(std::int64_t matrix, std::int64_t index, std::int64_t head, std::int64_t d, Sum sum, Sum* to) const {
        const RuleParts<Element>& rule = block.rule;
        const std::int64_t of_head = rule.sizes.decays_of_head(), decay = head * of_head + d;
        const Sum rate = rule.rate(head);
        Sum bias_sum = 0, rate_sum = 0;
        for (std::int64_t i = block.length; i-- > 0;) {
            const std::int64_t row = block.row(matrix, i);
            sum += block.decay_sums[(index * block.length + i) * of_head + d];
            const Sum raw = rule.raw_decay(row, decay), d_raw = sum * rate * softplus_slope(raw);
            rule.d_decays[row * rule.decay_pitch + rule.decay_begin + decay] = Element(d_raw);
            bias_sum += d_raw;
            rate_sum += sum * rate * softplus(raw);
        }
        to[decay] = bias_sum;
        return rate_sum;
    }
};

}  // namespace mgplan::runtime::cuda
