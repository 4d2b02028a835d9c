#pragma once
// See model/ops/delta_rule.hpp; the formulas are those of runtime/cpu/ops/delta_rule.cpp. Places follow each other; side by side are the
// columns of the states, which do not meet in the forward.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Where the parts of a delta rule lie. States are (key_dim, value_dim).
template <class Element>
struct RuleParts {
    using Sum = Compute<Element>;
    model::DeltaRuleSizes sizes;
    const Element *mixed, *gates, *decays, *step_bias, *log_decay;
    std::int64_t gate_pitch, beta_begin, decay_pitch, decay_begin;
    Sum *inverse_norms, *keeps;

    [[nodiscard]] MGPLAN_BOTH std::int64_t per_key() const { return sizes.value_heads / sizes.key_heads; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t row(std::int64_t place, std::int64_t sequence) const { return place * sizes.batch + sequence; }
    /// `which`: 0 the query, 1 the key.
    [[nodiscard]] MGPLAN_BOTH std::int64_t vector_at(std::int64_t row, std::int64_t which, std::int64_t key_head) const {
        return row * sizes.width() + which * sizes.keys() + key_head * sizes.key_dim;
    }
    [[nodiscard]] MGPLAN_BOTH Sum unit(std::int64_t row, std::int64_t which, std::int64_t key_head, std::int64_t i) const {
        return Sum(mixed[vector_at(row, which, key_head) + i]) * inverse_norms[(row * 2 + which) * sizes.key_heads + key_head];
    }
    [[nodiscard]] MGPLAN_BOTH Sum value(std::int64_t row, std::int64_t head, std::int64_t column) const {
        return mixed[row * sizes.width() + 2 * sizes.keys() + head * sizes.value_dim + column];
    }
    [[nodiscard]] MGPLAN_BOTH Sum query_scale() const { return 1 / square_root(static_cast<Sum>(sizes.key_dim)); }
    [[nodiscard]] MGPLAN_BOTH Sum beta(std::int64_t row, std::int64_t head) const {
        return static_cast<Sum>(sizes.strength) / (1 + exponential(-Sum(gates[row * gate_pitch + beta_begin + head])));
    }
    [[nodiscard]] MGPLAN_BOTH Sum beta_slope(Sum beta) const { return beta * (1 - beta / static_cast<Sum>(sizes.strength)); }
    /// `decay`: of all the heads'.
    [[nodiscard]] MGPLAN_BOTH Sum raw_decay(std::int64_t row, std::int64_t decay) const {
        return Sum(decays[row * decay_pitch + decay_begin + decay]) + Sum(step_bias[decay]);
    }
    [[nodiscard]] MGPLAN_BOTH Sum rate(std::int64_t head) const { return -exponential(Sum(log_decay[head])); }
    [[nodiscard]] MGPLAN_BOTH Sum log_kept(std::int64_t row, std::int64_t decay) const {
        return rate(decay / sizes.decays_of_head()) * softplus(raw_decay(row, decay));
    }
    /// What a place keeps of the rows of a head's state: `each` by row, or nullptr and one share of all.
    struct Kept {
        const Sum* each;
        Sum one;
        MGPLAN_BOTH Sum operator[](std::int64_t i) const { return each != nullptr ? each[i] : one; }
    };
    [[nodiscard]] MGPLAN_BOTH Kept kept(std::int64_t row, std::int64_t head) const {
        if (keeps != nullptr) return {keeps + row * sizes.decays() + head * sizes.key_dim, 0};
        return {nullptr, exponential(log_kept(row, head))};
    }

    /// What the key does not find, in one column, in the state `from` once that has decayed.
    [[nodiscard]] MGPLAN_BOTH Sum not_found(std::int64_t row, std::int64_t head, std::int64_t column, const Sum* from) const {
        const Kept shares = kept(row, head);
        Sum found = value(row, head, column);
        for (std::int64_t i = 0; i < sizes.key_dim; ++i)
            found -= shares[i] * from[i * sizes.value_dim + column] * unit(row, 1, head / per_key(), i);
        return found;
    }
    /// One column of the state from one place to the next; `from` may be `to`.
    MGPLAN_BOTH void advance(std::int64_t row, std::int64_t head, std::int64_t column, const Sum* from, Sum* to) const {
        const Kept shares = kept(row, head);
        const Sum written = beta(row, head) * not_found(row, head, column, from);
        for (std::int64_t i = 0; i < sizes.key_dim; ++i) {
            const std::int64_t at = i * sizes.value_dim + column;
            to[at] = shares[i] * from[at] + unit(row, 1, head / per_key(), i) * written;
        }
    }
};

template <class Element>
struct RuleNorms {
    using Sum = Compute<Element>;
    RuleParts<Element> rule;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [rest, head] = row_column(index, rule.sizes.key_heads);
        const auto [row, which] = row_column(rest, 2);
        const Element* const vector = rule.mixed + rule.vector_at(row, which, head);
        Sum squares = static_cast<Sum>(1e-6);
        for (std::int64_t i = 0; i < rule.sizes.key_dim; ++i) squares += Sum(vector[i]) * Sum(vector[i]);
        rule.inverse_norms[index] = 1 / square_root(squares);
    }
};

/// With a decay for each channel: what a row keeps of it.
template <class Element>
struct RuleKept {
    RuleParts<Element> rule;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, decay] = row_column(index, rule.sizes.decays());
        rule.keeps[index] = exponential(rule.log_kept(row, decay));
    }
};

/// One column of one value head, through all places.
template <class Element>
struct RuleColumn {
    using Sum = Compute<Element>;
    RuleParts<Element> rule;
    Sum* states;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::DeltaRuleSizes& s = rule.sizes;
        const auto [rest, column] = row_column(index, s.value_dim);
        const auto [sequence, head] = row_column(rest, s.value_heads);
        Sum* const state = states + rest * s.key_dim * s.value_dim;
        for (std::int64_t i = 0; i < s.key_dim; ++i) state[i * s.value_dim + column] = 0;
        for (std::int64_t place = 0; place < s.places; ++place) {
            const std::int64_t row = rule.row(place, sequence);
            rule.advance(row, head, column, state, state);
            Sum sum = 0;
            for (std::int64_t i = 0; i < s.key_dim; ++i)
                sum += state[i * s.value_dim + column] * rule.unit(row, 0, head / rule.per_key(), i);
            y[row * s.values() + head * s.value_dim + column] = Element(sum * rule.query_scale());
        }
    }
};

/// All value heads of one key head of one sequence, one behind the other, backward through all places.
template <class Element>
struct RuleGradients {
    using Sum = Compute<Element>;
    RuleParts<Element> rule;
    const Element* dy;
    Element *dx, *d_gates, *d_decays;
    Sum *chunk_states, *place_states, *state_gradients, *vectors, *units, *sums;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const model::DeltaRuleSizes& s = rule.sizes;
        const auto [sequence_of, key_head_of] = row_column(index, s.key_heads);
        const std::int64_t sequence = sequence_of, key_head = key_head_of, size = s.key_dim * s.value_dim;
        Sum* const by_chunk = chunk_states + index * s.chunks() * size;
        Sum* const by_place = place_states + index * s.chunk * size;
        Sum* const slope = state_gradients + index * size;
        for (std::int64_t head = key_head * rule.per_key(); head < (key_head + 1) * rule.per_key(); ++head) {
            team.each(s.value_dim, [&](std::int64_t c) {
                for (std::int64_t i = 0; i < s.key_dim; ++i) by_place[i * s.value_dim + c] = slope[i * s.value_dim + c] = 0;
                for (std::int64_t place = 0; place < s.places; ++place) {
                    for (std::int64_t i = 0; place % s.chunk == 0 && i < s.key_dim; ++i)
                        by_chunk[place / s.chunk * size + i * s.value_dim + c] = by_place[i * s.value_dim + c];
                    rule.advance(rule.row(place, sequence), head, c, by_place, by_place);
                }
            });
            Sum* const bias_sums = sums + sequence * (s.decays() + s.value_heads) + head * s.decays_of_head();
            Sum decay_sum = 0;
            team.each(s.decays_of_head(), [&](std::int64_t i) { bias_sums[i] = 0; });
            team.barrier();
            for (std::int64_t chunk = s.chunks(); chunk-- > 0;) {
                const std::int64_t begin = chunk * s.chunk, end = begin + s.chunk < s.places ? begin + s.chunk : s.places;
                team.each(s.value_dim, [&](std::int64_t c) {
                    for (std::int64_t i = 0; i < s.key_dim; ++i)
                        by_place[i * s.value_dim + c] = by_chunk[chunk * size + i * s.value_dim + c];
                    for (std::int64_t place = begin; place + 1 < end; ++place)
                        rule.advance(rule.row(place, sequence), head, c, by_place + (place - begin) * size,
                                     by_place + (place + 1 - begin) * size);
                });
                for (std::int64_t place = end; place-- > begin;) {
                    const std::int64_t row = rule.row(place, sequence);
                    const Sum* const before = by_place + (place - begin) * size;
                    const Sum d_log_kept = through_place(team, row, index, head, before, slope);
                    if (s.channel_decays)
                        decay_sum += through_channels(team, row, head, before, slope, bias_sums);
                    else
                        team.once([&] { decay_sum += through_decay(row, head, head, d_log_kept, bias_sums); });
                }
            }
            team.once([&] { sums[sequence * (s.decays() + s.value_heads) + s.decays() + head] = decay_sum; });
        }
    }

private:
    /// From the gradient of the logarithm of a decay to that of its raw value and bias; returns what it adds to the rate's.
    MGPLAN_BOTH Sum through_decay(std::int64_t row, std::int64_t head, std::int64_t decay, Sum d_log_kept, Sum* bias_sum) const {
        const Sum d_raw = d_log_kept * rule.rate(head) * softplus_slope(rule.raw_decay(row, decay));
        d_decays[row * rule.decay_pitch + rule.decay_begin + decay] = Element(d_raw);
        *bias_sum += d_raw;
        return d_log_kept * rule.log_kept(row, decay);
    }
    /// The same of all decays of a head, by the rows of `slope`, the gradient of the state in front of the place, `before`.
    template <class Team>
    MGPLAN_BOTH Sum through_channels(const Team& team, std::int64_t row, std::int64_t head, const Sum* before, const Sum* slope,
                                     Sum* bias_sums) const {
        const std::int64_t width = rule.sizes.value_dim;
        const Sum all = team.reduce(rule.sizes.key_dim, Sum{0}, Add{}, [&](std::int64_t i) {
            Sum sum = 0;
            for (std::int64_t c = 0; c < width; ++c) sum += slope[i * width + c] * before[i * width + c];
            return through_decay(row, head, head * rule.sizes.key_dim + i, sum, bias_sums + i);
        });
        team.barrier();
        return all;
    }
    /// Returns the gradient of the logarithm of one decay for all channels; `slope` becomes that of the state in front of the place,
    /// `before`.
    template <class Team>
    MGPLAN_BOTH Sum through_place(const Team& team, std::int64_t row, std::int64_t index, std::int64_t head, const Sum* before,
                                  Sum* slope) const {
        const model::DeltaRuleSizes& s = rule.sizes;
        const std::int64_t width = s.value_dim, key_head = head / rule.per_key();
        const bool first = head % rule.per_key() == 0;
        const typename RuleParts<Element>::Kept shares = rule.kept(row, head);
        const Sum strength = rule.beta(row, head), query_scale = rule.query_scale();
        Sum* const found = vectors + index * 3 * width;
        Sum* const written = found + width;  // gradient of what is written, times its strength
        Sum* const along = written + width;
        const auto out = [&](std::int64_t c) { return Sum(dy[row * s.values() + head * width + c]); };
        team.each(width, [&](std::int64_t c) {
            found[c] = rule.not_found(row, head, c, before);
            Sum d_written = 0;
            for (std::int64_t i = 0; i < s.key_dim; ++i) {
                slope[i * width + c] += rule.unit(row, 0, key_head, i) * query_scale * out(c);
                d_written += slope[i * width + c] * rule.unit(row, 1, key_head, i);
            }
            along[c] = d_written * found[c];
            written[c] = d_written * strength;
            dx[row * s.width() + 2 * s.keys() + head * width + c] = Element(written[c]);
        });
        team.barrier();
        team.each(s.key_dim, [&](std::int64_t i) {
            Sum d_query = 0, d_key = 0;
            const Sum key = rule.unit(row, 1, key_head, i);
            for (std::int64_t c = 0; c < width; ++c) {
                const Sum decayed = shares[i] * before[i * width + c];
                d_query += (decayed + key * strength * found[c]) * out(c);
                d_key += slope[i * width + c] * strength * found[c] - decayed * written[c];
            }
            Sum* const to = units + (row * 2 * s.key_heads + key_head) * s.key_dim + i;
            to[0] = (first ? Sum{0} : to[0]) + d_query * query_scale;
            to[s.keys()] = (first ? Sum{0} : to[s.keys()]) + d_key;
        });
        const Sum d_beta = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t c) { return along[c]; });
        team.once([&] { d_gates[row * rule.gate_pitch + rule.beta_begin + head] = Element(d_beta * rule.beta_slope(strength)); });
        team.barrier();
        team.each(width, [&](std::int64_t c) {
            Sum sum = 0;
            for (std::int64_t i = 0; i < s.key_dim; ++i) {
                Sum& value = slope[i * width + c];
                value -= rule.unit(row, 1, key_head, i) * written[c];
                value *= shares[i];
                sum += value * before[i * width + c];
            }
            along[c] = sum;
        });
        team.barrier();
        return team.reduce(width, Sum{0}, Add{}, [&](std::int64_t c) { return along[c]; });
    }
};

/// Through the division of one query or key by its length.
template <class Element>
struct RuleUnitGradient {
    using Sum = Compute<Element>;
    RuleParts<Element> rule;
    const Sum* units;
    Element* dx;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [rest, head] = row_column(index, rule.sizes.key_heads);
        const auto [row, which] = row_column(rest, 2);
        const Sum* const d = units + index * rule.sizes.key_dim;
        Sum along = 0;
        for (std::int64_t i = 0; i < rule.sizes.key_dim; ++i) along += rule.unit(row, which, head, i) * d[i];
        const std::int64_t at = rule.vector_at(row, which, head);
        for (std::int64_t i = 0; i < rule.sizes.key_dim; ++i)
            dx[at + i] = Element(rule.inverse_norms[index] * (d[i] - rule.unit(row, which, head, i) * along));
    }
};

template <class Element, class Arguments>
RuleParts<Element> rule_parts(const Arguments& x) {
    return {x.sizes,
            values<Element>(x.x),
            values<Element>(x.gates),
            values<Element>(x.decays),
            values<Element>(x.step_bias),
            values<Element>(x.log_decay),
            x.gate_pitch,
            x.beta_begin,
            x.decay_pitch,
            x.decay_begin,
            values<Compute<Element>>(x.inverse_norms),
            values<Compute<Element>>(x.kept)};
}

/// What all places read again and again.
template <class Launcher, class Element>
void write_rule_scratch(Launcher& launcher, const RuleParts<Element>& rule) {
    launcher.each(rule.sizes.rows() * 2 * rule.sizes.key_heads, RuleNorms<Element>{rule});
    if (rule.sizes.channel_decays) launcher.each(rule.sizes.rows() * rule.sizes.decays(), RuleKept<Element>{rule});
}

template <class Launcher>
void delta_rule(model::Device& device, const model::DeltaRuleArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        const RuleParts<Element> rule = rule_parts<Element>(x);
        write_rule_scratch(launcher, rule);
        launcher.each(x.sizes.batch * x.sizes.values(),
                      RuleColumn<Element>{rule, values<Compute<Element>>(x.states), values<Element>(x.y)});
    });
}

template <class Launcher>
void delta_rule_backward(model::Device& device, const model::DeltaRuleBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const model::DeltaRuleSizes& s = x.sizes;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const RuleParts<Element> rule = rule_parts<Element>(x);
        write_rule_scratch(launcher, rule);
        // There are few teams, and all their lanes wait for each place: a lane for each column.
        launcher.teams(s.batch * s.key_heads, lanes_for(4 * s.value_dim),
                       RuleGradients<Element>{rule, values<Element>(x.dy), values<Element>(x.dx), values<Element>(x.d_gates),
                                              values<Element>(x.d_decays), values<Sum>(x.chunk_states), values<Sum>(x.place_states),
                                              values<Sum>(x.state_gradients), values<Sum>(x.vectors), values<Sum>(x.unit_gradients),
                                              values<Sum>(x.sums)});
        launcher.each(s.rows() * 2 * s.key_heads, RuleUnitGradient<Element>{rule, values<Sum>(x.unit_gradients), values<Element>(x.dx)});
    });
    std::int64_t begin = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient}) {
        const std::int64_t count = begin == 0 ? s.decays() : s.value_heads;
        add_column_sums(launcher, x.x.dtype, x.sums, begin, s.decays() + s.value_heads, s.batch, count, *gradient);
        begin += count;
    }
}

}  // namespace mgplan::runtime::cuda
