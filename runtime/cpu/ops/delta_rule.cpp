#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/softplus.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// Share of a head's state that a place keeps: one for each row of the state, or one for all.
template <class Sum>
struct KeptShares {
    const Sum* each;  ///< nullptr: one
    Sum one;
    Sum operator[](std::int64_t i) const { return each != nullptr ? each[i] : one; }
};

/// Addresses the parts of a delta rule. States are (key_dim, value_dim).
template <class Element>
struct Rule {
    using Sum = Compute<Element>;
    model::DeltaRuleSizes sizes;
    const Element *mixed, *gates, *decays, *step_bias, *log_decay;
    std::int64_t gate_pitch, beta_begin, decay_pitch, decay_begin;
    Sum *inverse_norms, *keeps;

    [[nodiscard]] const Element* query(std::int64_t row, std::int64_t key_head) const {
        return mixed + row * sizes.width() + key_head * sizes.key_dim;
    }
    [[nodiscard]] const Element* key(std::int64_t row, std::int64_t key_head) const { return query(row, key_head) + sizes.keys(); }
    [[nodiscard]] const Element* value(std::int64_t row, std::int64_t head) const {
        return mixed + row * sizes.width() + 2 * sizes.keys() + head * sizes.value_dim;
    }
    /// `which`: 0 of the query, 1 of the key.
    [[nodiscard]] Sum& inverse_norm(std::int64_t row, std::int64_t which, std::int64_t key_head) const {
        return inverse_norms[(row * 2 + which) * sizes.key_heads + key_head];
    }
    [[nodiscard]] Sum query_scale() const { return 1 / std::sqrt(static_cast<Sum>(sizes.key_dim)); }
    [[nodiscard]] Sum beta(std::int64_t row, std::int64_t head) const {
        return static_cast<Sum>(sizes.strength) / (1 + exponential(-Sum(gates[row * gate_pitch + beta_begin + head])));
    }
    /// Returns the slope of a strength over its raw value.
    [[nodiscard]] Sum beta_slope(Sum beta) const { return beta * (1 - beta / static_cast<Sum>(sizes.strength)); }
    /// `decay`: index among the decays of all heads.
    [[nodiscard]] Sum raw_decay(std::int64_t row, std::int64_t decay) const {
        return Sum(decays[row * decay_pitch + decay_begin + decay]) + Sum(step_bias[decay]);
    }
    [[nodiscard]] Sum rate(std::int64_t head) const { return -std::exp(Sum(log_decay[head])); }
    /// Returns g, the logarithm of the share of the state that is kept.
    [[nodiscard]] Sum log_kept(std::int64_t row, std::int64_t decay) const {
        return rate(decay / sizes.decays_of_head()) * softplus(raw_decay(row, decay));
    }
    [[nodiscard]] KeptShares<Sum> kept(std::int64_t row, std::int64_t head) const {
        if (keeps != nullptr) return {keeps + row * sizes.decays() + head * sizes.key_dim, 0};
        return {nullptr, exponential(log_kept(row, head))};
    }

    /// Norms, and with a decay for each channel what is kept.
    void write_scratch() const {
        for (std::int64_t at = 0; keeps != nullptr && at < sizes.rows() * sizes.decays(); ++at)
            keeps[at] = exponential(log_kept(at / sizes.decays(), at % sizes.decays()));
        for (std::int64_t row = 0; row < sizes.rows(); ++row) {
            for (std::int64_t head = 0; head < sizes.key_heads; ++head) {
                for (const std::int64_t which : {0, 1}) {
                    const Element* const vector = which == 0 ? query(row, head) : key(row, head);
                    const Sum squares = sum_over<Sum>(sizes.key_dim, [&](std::int64_t i) { return Sum(vector[i]) * Sum(vector[i]); });
                    inverse_norm(row, which, head) = 1 / std::sqrt(squares + static_cast<Sum>(1e-6));
                }
            }
        }
    }

    /// The state from one place to the next. `found` (value_dim) gets v - S'ᵀ k, what the key did not find.
    void advance(std::int64_t row, std::int64_t head, Sum* state, Sum* found) const {
        const std::int64_t key_head = head / (sizes.value_heads / sizes.key_heads), width = sizes.value_dim;
        const KeptShares<Sum> shares = kept(row, head);
        const Sum unit = inverse_norm(row, 1, key_head), strength = beta(row, head);
        const Element* const k = key(row, key_head);
        for (std::int64_t c = 0; c < width; ++c) found[c] = value(row, head)[c];
        for (std::int64_t i = 0; i < sizes.key_dim; ++i) {
            const Sum share = shares[i];
            for (std::int64_t c = 0; c < width; ++c) {
                state[i * width + c] *= share;
                found[c] -= state[i * width + c] * Sum(k[i]) * unit;
            }
        }
        for (std::int64_t i = 0; i < sizes.key_dim; ++i) {
            for (std::int64_t c = 0; c < width; ++c) state[i * width + c] += Sum(k[i]) * unit * strength * found[c];
        }
    }
};

template <class Element, class Arguments>
Rule<Element> rule_of(const Arguments& x) {
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

/// Backward of the division by the length l = 1 / inverse: dx = inverse · (d - x (x · d) · inverse²).
template <class Element>
void write_vector_gradients(const Rule<Element>& rule, const model::DeltaRuleBackwardArguments& x) {
    using Sum = Compute<Element>;
    const model::DeltaRuleSizes& s = x.sizes;
    const std::int64_t kd = s.key_dim;
    const Sum* const units = values<Sum>(x.unit_gradients);
    Element* const dx = values<Element>(x.dx);
    for (std::int64_t row = 0; row < s.rows(); ++row) {
        for (const std::int64_t which : {0, 1}) {
            for (std::int64_t head = 0; head < s.key_heads; ++head) {
                const Element* const vector = which == 0 ? rule.query(row, head) : rule.key(row, head);
                const Sum* const d = units + ((row * 2 + which) * s.key_heads + head) * kd;
                const Sum inverse = rule.inverse_norm(row, which, head);
                const Sum along = sum_over<Sum>(kd, [&](std::int64_t i) { return Sum(vector[i]) * d[i]; }) * inverse * inverse;
                Element* const to = dx + row * s.width() + which * s.keys() + head * kd;
                for (std::int64_t i = 0; i < kd; ++i) to[i] = Element(inverse * (d[i] - Sum(vector[i]) * along));
            }
        }
    }
}

/// Writes the gradient of one decay's raw value from that of its logarithm, and adds to the sums for its bias and its head's rate.
template <class Element>
void through_decay(const Rule<Element>& rule, const model::DeltaRuleBackwardArguments& x, std::int64_t row, std::int64_t decay,
                   Compute<Element> d_log_kept) {
    using Sum = Compute<Element>;
    const std::int64_t head = decay / x.sizes.decays_of_head();
    const Sum d_raw = d_log_kept * rule.rate(head) * softplus_slope(rule.raw_decay(row, decay));
    values<Element>(x.d_decays)[row * x.decay_pitch + x.decay_begin + decay] = Element(d_raw);
    values<Sum>(x.sums)[decay] += d_raw;
    values<Sum>(x.sums)[x.sizes.decays() + head] += d_log_kept * rule.log_kept(row, decay);
}

/// Adds the sums over all rows to the gradients of each decay's bias and each head's rate.
void add_sums(const model::DeltaRuleBackwardArguments& x) {
    const model::DeltaRuleSizes& s = x.sizes;
    std::int64_t begin = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient}) {
        const std::int64_t count = begin == 0 ? s.decays() : s.value_heads;
        with_types(x.x.dtype, gradient->dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            for (std::int64_t i = 0; i < count; ++i) {
                Gradient& value = values<Gradient>(*gradient)[i];
                value = Gradient(Sum(value) + values<Sum>(x.sums)[begin + i]);
            }
        });
        begin += count;
    }
}

/// Takes gradients of a head back through its places, one after the other; formulas at delta_rule_backward().
template <class Element>
class PlacesBack {
    using Sum = Compute<Element>;

public:
    PlacesBack(const Rule<Element>& rule, const model::DeltaRuleBackwardArguments& x)
        : rule_(rule),
          x_(x),
          s_(x.sizes),
          key_dim_(s_.key_dim),
          value_dim_(s_.value_dim),
          slope_(values<Sum>(x.state_gradients)),
          units_(values<Sum>(x.unit_gradients)),
          state_(static_cast<std::size_t>(key_dim_ * value_dim_)),
          found_(static_cast<std::size_t>(value_dim_)),
          d_written_(static_cast<std::size_t>(value_dim_)) {}

    /// Sets the gradient of the state after the last place to zero.
    void begin() { std::fill(slope_, slope_ + key_dim_ * value_dim_, Sum{0}); }

    /// Does the backward of the place of `row`; `before`: the state in front of it.
    void back(std::int64_t row, std::int64_t head, const Sum* before) {
        const std::int64_t key_head = head / (s_.value_heads / s_.key_heads);
        std::copy(before, before + key_dim_ * value_dim_, state_.begin());
        rule_.advance(row, head, state_.data(), found_.data());
        const Sum strength = rule_.beta(row, head);
        through_output(row, head, key_head);
        Sum d_beta = 0;
        for (std::int64_t c = 0; c < value_dim_; ++c) {
            const auto at = static_cast<std::size_t>(c);
            d_beta += d_written_[at] * found_[at];
            d_written_[at] *= strength;  // from here on beta · du
            values<Element>(x_.dx)[row * s_.width() + 2 * s_.keys() + head * value_dim_ + c] = Element(d_written_[at]);
        }
        through_state(row, head, key_head, before);
        values<Element>(x_.d_gates)[row * x_.gate_pitch + x_.beta_begin + head] = Element(d_beta * rule_.beta_slope(strength));
    }

private:
    /// dq, L += q dyᵀ and du.
    void through_output(std::int64_t row, std::int64_t head, std::int64_t key_head) {
        const Sum key_unit = rule_.inverse_norm(row, 1, key_head);
        const Sum query_unit = rule_.inverse_norm(row, 0, key_head) * rule_.query_scale();
        const Element* const dy = values<Element>(x_.dy) + row * s_.values() + head * value_dim_;
        const Element *const q = rule_.query(row, key_head), *const k = rule_.key(row, key_head);
        Sum* const dq = units_ + (row * 2 * s_.key_heads + key_head) * key_dim_;
        std::fill(d_written_.begin(), d_written_.end(), Sum{0});
        for (std::int64_t i = 0; i < key_dim_; ++i) {
            Sum* const line = slope_ + i * value_dim_;
            Sum read = 0;
            for (std::int64_t c = 0; c < value_dim_; ++c) {
                read += state_[static_cast<std::size_t>(i * value_dim_ + c)] * Sum(dy[c]);
                line[c] += Sum(q[i]) * query_unit * Sum(dy[c]);
                d_written_[static_cast<std::size_t>(c)] += line[c] * Sum(k[i]) * key_unit;
            }
            dq[i] += read * rule_.query_scale();
        }
    }

    /// dk, L', dg and the gradient of the state in front of the place.
    void through_state(std::int64_t row, std::int64_t head, std::int64_t key_head, const Sum* before) {
        const KeptShares<Sum> shares = rule_.kept(row, head);
        const Sum strength = rule_.beta(row, head), key_unit = rule_.inverse_norm(row, 1, key_head);
        const Element* const k = rule_.key(row, key_head);
        Sum* const dk = units_ + (row * 2 * s_.key_heads + key_head) * key_dim_ + s_.keys();
        Sum d_log_kept = 0;
        for (std::int64_t i = 0; i < key_dim_; ++i) {
            Sum* const line = slope_ + i * value_dim_;
            const Sum kept = shares[i];
            for (std::int64_t c = 0; c < value_dim_; ++c) {
                const auto at = static_cast<std::size_t>(c);
                const Sum decayed = kept * before[i * value_dim_ + c];
                dk[i] += line[c] * strength * found_[at] - decayed * d_written_[at];
                line[c] -= Sum(k[i]) * key_unit * d_written_[at];
                d_log_kept += line[c] * decayed;
                line[c] *= kept;
            }
            if (s_.channel_decays) through_decay(rule_, x_, row, head * key_dim_ + i, std::exchange(d_log_kept, Sum{0}));
        }
        if (!s_.channel_decays) through_decay(rule_, x_, row, head, d_log_kept);
    }

    const Rule<Element>& rule_;
    const model::DeltaRuleBackwardArguments& x_;
    const model::DeltaRuleSizes& s_;
    std::int64_t key_dim_, value_dim_;
    Sum* slope_;  ///< gradient of the state after the place
    Sum* units_;  ///< (rows, 2, key_heads, key_dim)
    std::vector<Sum> state_, found_, d_written_;
};

}  // namespace

void delta_rule(model::Device& /*device*/, const model::DeltaRuleArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const model::DeltaRuleSizes& s = x.sizes;
        const Rule<Element> rule = rule_of<Element>(x);
        rule.write_scratch();
        std::vector<Sum> found(static_cast<std::size_t>(s.value_dim));
        Sum* const state = values<Sum>(x.states);
        for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
            for (std::int64_t head = 0; head < s.value_heads; ++head) {
                const std::int64_t key_head = head / (s.value_heads / s.key_heads);
                std::fill(state, state + s.key_dim * s.value_dim, Sum{0});
                for (std::int64_t place = 0; place < s.places; ++place) {
                    const std::int64_t row = place * s.batch + sequence;
                    rule.advance(row, head, state, found.data());
                    const Sum scale = rule.inverse_norm(row, 0, key_head) * rule.query_scale();
                    Element* const out = values<Element>(x.y) + row * s.values() + head * s.value_dim;
                    for (std::int64_t c = 0; c < s.value_dim; ++c)
                        out[c] = Element(scale * sum_over<Sum>(s.key_dim, [&](std::int64_t i) {
                                             return state[i * s.value_dim + c] * Sum(rule.query(row, key_head)[i]);
                                         }));
                }
            }
        }
    });
}

// L is the gradient of the state after a place. With S' the decayed state, r = v - S'ᵀ k, u = beta r, S = S' + k uᵀ, y = Sᵀ q:
// dq = S dy; L += q dyᵀ; du = Lᵀ k; dk = L u - S' (beta du); dbeta = du · r; dv = beta du;
// L' = L - k (beta du)ᵀ; dg = <L', S'>, by rows where each has a decay; the place before gets exp(g) L'.
void delta_rule_backward(model::Device& /*device*/, const model::DeltaRuleBackwardArguments& x) {
    const model::DeltaRuleSizes& s = x.sizes;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Rule<Element> rule = rule_of<Element>(x);
        rule.write_scratch();
        const std::int64_t size = s.key_dim * s.value_dim;
        Sum* const chunk_states = values<Sum>(x.chunk_states);
        Sum* const place_states = values<Sum>(x.place_states);  // in front of each place of a chunk
        Sum* const units = values<Sum>(x.unit_gradients);
        Sum* const sums = values<Sum>(x.sums);
        std::fill(units, units + s.rows() * 2 * s.keys(), Sum{0});
        std::fill(sums, sums + s.decays() + s.value_heads, Sum{0});
        PlacesBack<Element> places(rule, x);
        std::vector<Sum> state(static_cast<std::size_t>(size)), found(static_cast<std::size_t>(s.value_dim));
        for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
            for (std::int64_t head = 0; head < s.value_heads; ++head) {
                std::fill(state.begin(), state.end(), Sum{0});
                for (std::int64_t place = 0; place < s.places; ++place) {
                    if (place % s.chunk == 0) std::copy(state.begin(), state.end(), chunk_states + place / s.chunk * size);
                    rule.advance(place * s.batch + sequence, head, state.data(), found.data());
                }
                places.begin();
                for (std::int64_t chunk = s.chunks(); chunk-- > 0;) {
                    const std::int64_t begin = chunk * s.chunk, end = std::min(begin + s.chunk, s.places);
                    std::copy(chunk_states + chunk * size, chunk_states + (chunk + 1) * size, place_states);
                    for (std::int64_t place = begin; place + 1 < end; ++place) {
                        Sum* const from = place_states + (place - begin) * size;
                        std::copy(from, from + size, from + size);
                        rule.advance(place * s.batch + sequence, head, from + size, found.data());
                    }
                    for (std::int64_t place = end; place-- > begin;)
                        places.back(place * s.batch + sequence, head, place_states + (place - begin) * size);
                }
            }
        }
        write_vector_gradients<Element>(rule, x);
    });
    add_sums(x);
}

}  // namespace mgplan::runtime::cpu
