#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/softplus.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// One chunk of one sequence: places [begin, begin + places).
struct Chunk {
    std::int64_t number, sequence, begin, places;
};

/// Addresses the parts of a scan. a_t below is the sum of dt · A from the chunk's first place to t.
template <class Element>
struct Scan {
    using Sum = Compute<Element>;
    model::StateSpaceSizes sizes;
    const Element *mixed, *raw_steps, *step_bias, *log_decay, *skip;
    std::int64_t step_pitch, step_begin;
    Sum *steps, *decays, *states;

    [[nodiscard]] std::int64_t row(const Chunk& chunk, std::int64_t i) const { return (chunk.begin + i) * sizes.batch + chunk.sequence; }
    [[nodiscard]] const Element* x(std::int64_t row, std::int64_t head) const {
        return mixed + row * sizes.width() + head * sizes.head_dim;
    }
    [[nodiscard]] const Element* b(std::int64_t row, std::int64_t group) const {
        return mixed + row * sizes.width() + sizes.inner() + group * sizes.state;
    }
    [[nodiscard]] const Element* c(std::int64_t row, std::int64_t group) const { return b(row, group) + sizes.groups * sizes.state; }
    [[nodiscard]] Sum step(std::int64_t row, std::int64_t head) const { return steps[row * sizes.heads + head]; }
    [[nodiscard]] Sum decay(std::int64_t row, std::int64_t head) const { return decays[row * sizes.heads + head]; }
    [[nodiscard]] Sum rate(std::int64_t head) const {
        const model::FixedDecays& fixed = sizes.fixed;
        if (fixed.used())
            return static_cast<Sum>(-fixed.factor * std::exp(-fixed.slope * static_cast<double>(fixed.first_head + head + 1)));
        return -std::exp(Sum(log_decay[head]));
    }
    [[nodiscard]] Sum skip_of(std::int64_t head) const { return sizes.fixed.used() ? Sum{0} : Sum(skip[head]); }
    [[nodiscard]] Sum new_step(std::int64_t row, std::int64_t head) const {
        if (sizes.fixed.used()) return 1;
        return std::clamp(softplus(raw(row, head)), static_cast<Sum>(sizes.step_low), static_cast<Sum>(sizes.step_high));
    }
    [[nodiscard]] Sum raw(std::int64_t row, std::int64_t head) const {
        return Sum(raw_steps[row * step_pitch + step_begin + head]) + Sum(step_bias[head]);
    }
    /// Returns the offset of a head's state at a chunk's start: (head_dim, state).
    [[nodiscard]] std::int64_t state_at(std::int64_t chunk, std::int64_t sequence, std::int64_t head) const {
        return ((chunk * sizes.batch + sequence) * sizes.heads + head) * sizes.head_dim * sizes.state;
    }
    [[nodiscard]] Chunk chunk(std::int64_t number, std::int64_t sequence) const {
        const std::int64_t begin = number * sizes.chunk;
        return {number, sequence, begin, std::min(sizes.chunk, sizes.places - begin)};
    }
    template <class Work>
    void each_chunk(Work work) const {
        for (std::int64_t number = 0; number < sizes.chunks(); ++number) {
            for (std::int64_t sequence = 0; sequence < sizes.batch; ++sequence) work(chunk(number, sequence));
        }
    }

    void write_steps() const {
        each_chunk([&](const Chunk& chunk) {
            for (std::int64_t head = 0; head < sizes.heads; ++head) {
                Sum total = 0;
                for (std::int64_t i = 0; i < chunk.places; ++i) {
                    const std::int64_t at = row(chunk, i) * sizes.heads + head;
                    steps[at] = new_step(row(chunk, i), head);
                    total += steps[at] * rate(head);
                    decays[at] = total;
                }
            }
        });
    }

    /// The states at the chunks' starts: H' = exp(a_end) H + Σ_j exp(a_end - a_j) dt_j x_j B_jᵀ.
    void write_states() const {
        const std::int64_t p = sizes.head_dim, n = sizes.state, per_group = sizes.heads / sizes.groups;
        std::fill(states, states + state_at(1, 0, 0), Sum{0});
        each_chunk([&](const Chunk& chunk) {
            if (chunk.number + 1 == sizes.chunks()) return;
            for (std::int64_t head = 0; head < sizes.heads; ++head) {
                const Sum* const from = states + state_at(chunk.number, chunk.sequence, head);
                Sum* const to = states + state_at(chunk.number + 1, chunk.sequence, head);
                const Sum end = decay(row(chunk, chunk.places - 1), head), kept = exponential(end);
                for (std::int64_t k = 0; k < p * n; ++k) to[k] = kept * from[k];
                for (std::int64_t j = 0; j < chunk.places; ++j) {
                    const std::int64_t at = row(chunk, j);
                    const Sum weight = exponential(end - decay(at, head)) * step(at, head);
                    for (std::int64_t k = 0; k < p; ++k) {
                        const Sum value = weight * Sum(x(at, head)[k]);
                        for (std::int64_t m = 0; m < n; ++m) to[k * n + m] += value * Sum(b(at, head / per_group)[m]);
                    }
                }
            }
        });
    }

    /// C_i · B_j for j <= i of a chunk, in rows of `places`.
    void write_scores(const Chunk& chunk, std::int64_t group, std::vector<Sum>& scores) const {
        scores.assign(static_cast<std::size_t>(chunk.places * chunk.places), Sum{0});
        for (std::int64_t i = 0; i < chunk.places; ++i) {
            const Element* const reads = c(row(chunk, i), group);
            for (std::int64_t j = 0; j <= i; ++j) {
                const Element* const writes = b(row(chunk, j), group);
                scores[static_cast<std::size_t>(i * chunk.places + j)] =
                    sum_over<Sum>(sizes.state, [&](std::int64_t m) { return Sum(reads[m]) * Sum(writes[m]); });
            }
        }
    }
};

template <class Element, class Arguments>
Scan<Element> scan_of(const Arguments& x) {
    using Sum = Compute<Element>;
    return {x.sizes,
            values<Element>(x.x),
            values<Element>(x.raw_steps),
            values<Element>(x.step_bias),
            values<Element>(x.log_decay),
            values<Element>(x.skip),
            x.step_pitch,
            x.step_begin,
            values<Sum>(x.steps),
            values<Sum>(x.decays),
            values<Sum>(x.states)};
}

/// The gradients of one chunk of one group of heads, as sums: dx of its heads, dB, dC.
template <class Element>
class ChunkGradients {
public:
    using Sum = Compute<Element>;
    ChunkGradients(const Scan<Element>& scan, const Element* dy, const Sum* state_gradients)
        : scan_(scan), dy_(dy), state_gradients_(state_gradients) {}

    /// Writes the rows of dx, dB and dC to dx, the raw steps' gradients through write_step(row, head, value), and adds to sums (3, heads).
    template <class WriteStep>
    void write(const Chunk& chunk, std::int64_t group, Element* dx, WriteStep write_step, Sum* sums) {
        const model::StateSpaceSizes& s = scan_.sizes;
        const std::int64_t per_group = s.heads / s.groups;
        scan_.write_scores(chunk, group, scores_);
        d_writes_.assign(static_cast<std::size_t>(chunk.places * s.state), Sum{0});
        d_reads_ = d_writes_;
        for (std::int64_t head = group * per_group; head < (group + 1) * per_group; ++head) {
            add_head(chunk, group, head, sums);
            for (std::int64_t i = 0; i < chunk.places; ++i) {
                const std::int64_t row = scan_.row(chunk, i);
                if (!s.fixed.used()) {
                    const Sum raw = scan_.raw(row, head), free = softplus(raw);
                    const bool limited = free < static_cast<Sum>(s.step_low) || free > static_cast<Sum>(s.step_high);
                    const Sum d_raw = limited ? Sum{0} : d_steps_[static_cast<std::size_t>(i)] * softplus_slope(raw);
                    write_step(row, head, d_raw);
                    sums[head] += d_raw;
                }
                for (std::int64_t k = 0; k < s.head_dim; ++k)
                    dx[row * s.width() + head * s.head_dim + k] = Element(d_values_[static_cast<std::size_t>(i * s.head_dim + k)]);
            }
        }
        for (std::int64_t i = 0; i < chunk.places; ++i) {
            Element* const to = dx + scan_.row(chunk, i) * s.width() + s.inner() + group * s.state;
            for (std::int64_t m = 0; m < s.state; ++m) {
                to[m] = Element(d_writes_[static_cast<std::size_t>(i * s.state + m)]);
                to[s.groups * s.state + m] = Element(d_reads_[static_cast<std::size_t>(i * s.state + m)]);
            }
        }
    }

private:
    void add_head(const Chunk& chunk, std::int64_t group, std::int64_t head, Sum* sums) {
        const model::StateSpaceSizes& s = scan_.sizes;
        const std::int64_t places = chunk.places, p = s.head_dim, n = s.state;
        const Sum* const state = scan_.states + scan_.state_at(chunk.number, chunk.sequence, head);
        const Sum* const d_state = state_gradients_ + scan_.state_at(chunk.number, chunk.sequence, head);  // of the state at its end
        d_values_.assign(static_cast<std::size_t>(places * p), Sum{0});
        d_steps_.assign(static_cast<std::size_t>(places), Sum{0});
        d_decays_ = d_steps_;  // of a_i
        const Sum end = scan_.decay(scan_.row(chunk, places - 1), head);
        for (std::int64_t i = 0; i < places; ++i) {
            const std::int64_t row_i = scan_.row(chunk, i);
            const Element* const dy = dy_ + row_i * s.inner() + head * p;
            const auto at_i = static_cast<std::size_t>(i);
            // Within the chunk: y_i = Σ_(j <= i) exp(a_i - a_j) (C_i · B_j) dt_j x_j.
            for (std::int64_t j = 0; j <= i; ++j) {
                const std::int64_t row_j = scan_.row(chunk, j);
                const auto at_j = static_cast<std::size_t>(j);
                const Sum kept = exponential(scan_.decay(row_i, head) - scan_.decay(row_j, head)), step = scan_.step(row_j, head);
                const Sum score = scores_[static_cast<std::size_t>(i * places + j)];
                const Element* const x = scan_.x(row_j, head);
                const Sum along = sum_over<Sum>(p, [&](std::int64_t k) { return Sum(dy[k]) * Sum(x[k]); });
                const Sum whole = kept * score * along;
                d_steps_[at_j] += whole;
                d_decays_[at_i] += whole * step;
                d_decays_[at_j] -= whole * step;
                for (std::int64_t m = 0; m < n; ++m) {
                    d_reads_[static_cast<std::size_t>(i * n + m)] += kept * step * along * Sum(scan_.b(row_j, group)[m]);
                    d_writes_[static_cast<std::size_t>(j * n + m)] += kept * step * along * Sum(scan_.c(row_i, group)[m]);
                }
                for (std::int64_t k = 0; k < p; ++k) d_values_[static_cast<std::size_t>(j * p + k)] += kept * score * step * Sum(dy[k]);
            }
            // From before it: exp(a_i) H C_i; and what the place leaves to the state at the chunk's end: exp(a_end - a_i) dt_i x_i B_iᵀ.
            const Sum reached = exponential(scan_.decay(row_i, head)), left = exponential(end - scan_.decay(row_i, head));
            const Sum step = scan_.step(row_i, head);
            const Element* const x = scan_.x(row_i, head);
            Sum read = 0, written = 0, skipped = 0;
            for (std::int64_t k = 0; k < p; ++k) {
                Sum from_state = 0, to_state = 0;
                for (std::int64_t m = 0; m < n; ++m) {
                    from_state += state[k * n + m] * Sum(scan_.c(row_i, group)[m]);
                    to_state += d_state[k * n + m] * Sum(scan_.b(row_i, group)[m]);
                    d_reads_[static_cast<std::size_t>(i * n + m)] += reached * Sum(dy[k]) * state[k * n + m];
                    d_writes_[static_cast<std::size_t>(i * n + m)] += left * step * Sum(x[k]) * d_state[k * n + m];
                }
                read += Sum(dy[k]) * from_state;
                written += Sum(x[k]) * to_state;
                skipped += Sum(dy[k]) * Sum(x[k]);
                d_values_[static_cast<std::size_t>(i * p + k)] += left * step * to_state + scan_.skip_of(head) * Sum(dy[k]);
            }
            d_decays_[at_i] += reached * read - left * written * step;
            d_decays_.back() += left * written * step;
            d_steps_[at_i] += left * written;
            sums[2 * s.heads + head] += skipped;
        }
        d_decays_.back() += exponential(end) * sum_over<Sum>(p * n, [&](std::int64_t k) { return d_state[k] * state[k]; });
        // a_i sums dt · A of the places up to i.
        Sum behind = 0;
        for (std::int64_t i = places; i-- > 0;) {
            behind += d_decays_[static_cast<std::size_t>(i)];
            d_steps_[static_cast<std::size_t>(i)] += behind * scan_.rate(head);
            sums[s.heads + head] += behind * scan_.step(scan_.row(chunk, i), head) * scan_.rate(head);
        }
    }

    const Scan<Element>& scan_;
    const Element* dy_;
    const Sum* state_gradients_;
    std::vector<Sum> scores_, d_values_, d_steps_, d_decays_, d_writes_, d_reads_;
};

}  // namespace

void state_space_scan(model::Device& /*device*/, const model::StateSpaceArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Scan<Element> scan = scan_of<Element>(x);
        const model::StateSpaceSizes& s = x.sizes;
        scan.write_steps();
        scan.write_states();
        std::vector<Sum> scores, y(static_cast<std::size_t>(s.head_dim));
        scan.each_chunk([&](const Chunk& chunk) {
            for (std::int64_t head = 0; head < s.heads; ++head) {
                const std::int64_t per_group = s.heads / s.groups, group = head / per_group;
                if (head % per_group == 0) scan.write_scores(chunk, group, scores);
                const Sum* const state = scan.states + scan.state_at(chunk.number, chunk.sequence, head);
                for (std::int64_t i = 0; i < chunk.places; ++i) {
                    const std::int64_t row = scan.row(chunk, i);
                    const Sum decay = scan.decay(row, head), reached = exponential(decay);
                    const Element* const reads = scan.c(row, group);
                    for (std::int64_t k = 0; k < s.head_dim; ++k) {
                        const Sum from_state =
                            sum_over<Sum>(s.state, [&](std::int64_t m) { return state[k * s.state + m] * Sum(reads[m]); });
                        y[static_cast<std::size_t>(k)] = reached * from_state + scan.skip_of(head) * Sum(scan.x(row, head)[k]);
                    }
                    for (std::int64_t j = 0; j <= i; ++j) {
                        const std::int64_t from = scan.row(chunk, j);
                        const Sum weight = scores[static_cast<std::size_t>(i * chunk.places + j)] *
                                           exponential(decay - scan.decay(from, head)) * scan.step(from, head);
                        for (std::int64_t k = 0; k < s.head_dim; ++k) y[static_cast<std::size_t>(k)] += weight * Sum(scan.x(from, head)[k]);
                    }
                    Element* const out = values<Element>(x.y) + row * s.inner() + head * s.head_dim;
                    for (std::int64_t k = 0; k < s.head_dim; ++k) out[k] = Element(y[static_cast<std::size_t>(k)]);
                }
            }
        });
    });
}

void state_space_scan_backward(model::Device& /*device*/, const model::StateSpaceBackwardArguments& x) {
    const model::StateSpaceSizes& s = x.sizes;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Scan<Element> scan = scan_of<Element>(x);
        scan.write_steps();
        scan.write_states();
        // Gradients G of the state at each chunk's end: G' = exp(a_end) G + Σ_i exp(a_i) dy_i C_iᵀ is that of the chunk before.
        const std::int64_t p = s.head_dim, n = s.state, last = s.chunks() - 1;
        Sum* const gradients = values<Sum>(x.state_gradients);
        std::fill(gradients + scan.state_at(last, 0, 0), gradients + scan.state_at(last + 1, 0, 0), Sum{0});
        const auto* const dy = values<Element>(x.dy);
        for (std::int64_t number = last; number > 0; --number) {
            for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
                const Chunk chunk = scan.chunk(number, sequence);
                for (std::int64_t head = 0; head < s.heads; ++head) {
                    const Sum* const from = gradients + scan.state_at(number, sequence, head);
                    Sum* const to = gradients + scan.state_at(number - 1, sequence, head);
                    const Sum kept = exponential(scan.decay(scan.row(chunk, chunk.places - 1), head));
                    for (std::int64_t k = 0; k < p * n; ++k) to[k] = kept * from[k];
                    for (std::int64_t i = 0; i < chunk.places; ++i) {
                        const std::int64_t row = scan.row(chunk, i);
                        const Sum reached = exponential(scan.decay(row, head));
                        const Element* const reads = scan.c(row, head / (s.heads / s.groups));
                        for (std::int64_t k = 0; k < p; ++k) {
                            const Sum value = reached * Sum(dy[row * s.inner() + head * p + k]);
                            for (std::int64_t m = 0; m < n; ++m) to[k * n + m] += value * Sum(reads[m]);
                        }
                    }
                }
            }
        }
        Sum* const sums = values<Sum>(x.sums);
        std::fill(sums, sums + 3 * s.heads, Sum{0});
        ChunkGradients<Element> of_chunk(scan, dy, gradients);
        const auto write_step = [&](std::int64_t row, std::int64_t head, Sum value) {
            values<Element>(x.d_raw_steps)[row * x.step_pitch + x.step_begin + head] = Element(value);
        };
        scan.each_chunk([&](const Chunk& chunk) {
            for (std::int64_t group = 0; group < s.groups; ++group) of_chunk.write(chunk, group, values<Element>(x.dx), write_step, sums);
        });
    });
    if (s.fixed.used()) return;
    std::int64_t part = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient, &x.skip_gradient}) {
        with_types(x.x.dtype, gradient->dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            for (std::int64_t head = 0; head < s.heads; ++head) {
                Gradient& value = values<Gradient>(*gradient)[head];
                value = Gradient(Sum(value) + values<Sum>(x.sums)[part * s.heads + head]);
            }
        });
        ++part;
    }
}

}  // namespace mgplan::runtime::cpu
