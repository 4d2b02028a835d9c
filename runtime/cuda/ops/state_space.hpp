#pragma once
// See model/ops/state_space.hpp; the formulas are those of runtime/cpu/ops/state_space.cpp, with the gradient of the decays from sums
// over a row: what a place reads minus what later places read of it.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Where the parts of a scan lie; `dy`, `state_gradients` and `pair_sums` in the backward alone.
template <class Element>
struct ScanParts {
    using Sum = Compute<Element>;
    model::StateSpaceSizes sizes;
    const Element *mixed, *raw_steps, *step_bias, *log_decay, *skip;
    std::int64_t step_pitch, step_begin;
    Sum *steps, *decays, *states, *scores;
    const Element* dy = nullptr;
    Sum* state_gradients = nullptr;
    Sum* pair_sums = nullptr;  ///< (rows, groups, chunk), then (3, rows, heads)

    [[nodiscard]] MGPLAN_BOTH std::int64_t per_group() const { return sizes.heads / sizes.groups; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t row(std::int64_t place, std::int64_t sequence) const { return place * sizes.batch + sequence; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t end_of(std::int64_t chunk) const {
        const std::int64_t end = (chunk + 1) * sizes.chunk;
        return end < sizes.places ? end : sizes.places;
    }
    [[nodiscard]] MGPLAN_BOTH Sum x(std::int64_t row, std::int64_t head, std::int64_t k) const {
        return mixed[row * sizes.width() + head * sizes.head_dim + k];
    }
    [[nodiscard]] MGPLAN_BOTH Sum b(std::int64_t row, std::int64_t group, std::int64_t m) const {
        return mixed[row * sizes.width() + sizes.inner() + group * sizes.state + m];
    }
    [[nodiscard]] MGPLAN_BOTH Sum c(std::int64_t row, std::int64_t group, std::int64_t m) const { return b(row, group + sizes.groups, m); }
    [[nodiscard]] MGPLAN_BOTH Sum slope(std::int64_t row, std::int64_t head, std::int64_t k) const {
        return dy[row * sizes.inner() + head * sizes.head_dim + k];
    }
    [[nodiscard]] MGPLAN_BOTH Sum step(std::int64_t row, std::int64_t head) const { return steps[row * sizes.heads + head]; }
    [[nodiscard]] MGPLAN_BOTH Sum decay(std::int64_t row, std::int64_t head) const { return decays[row * sizes.heads + head]; }
    [[nodiscard]] MGPLAN_BOTH Sum rate(std::int64_t head) const {
        const model::FixedDecays& fixed = sizes.fixed;
        if (fixed.used())
            return static_cast<Sum>(-fixed.factor * exponential(-fixed.slope * static_cast<double>(fixed.first_head + head + 1)));
        return -exponential(Sum(log_decay[head]));
    }
    [[nodiscard]] MGPLAN_BOTH Sum skip_of(std::int64_t head) const { return sizes.fixed.used() ? Sum{0} : Sum(skip[head]); }
    [[nodiscard]] MGPLAN_BOTH Sum new_step(std::int64_t row, std::int64_t head) const {
        if (sizes.fixed.used()) return 1;
        const Sum low = static_cast<Sum>(sizes.step_low), high = static_cast<Sum>(sizes.step_high), free = softplus(raw(row, head));
        return free < low ? low : free > high ? high : free;
    }
    [[nodiscard]] MGPLAN_BOTH Sum raw(std::int64_t row, std::int64_t head) const {
        return Sum(raw_steps[row * step_pitch + step_begin + head]) + Sum(step_bias[head]);
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t state_at(std::int64_t chunk, std::int64_t sequence, std::int64_t head) const {
        return ((chunk * sizes.batch + sequence) * sizes.heads + head) * sizes.head_dim * sizes.state;
    }
    /// Index of the pair of a row and a place of its chunk, counted from the chunk's first.
    [[nodiscard]] MGPLAN_BOTH std::int64_t pair_at(std::int64_t row, std::int64_t group, std::int64_t other) const {
        return (row * sizes.groups + group) * sizes.chunk + other;
    }
};

/// Steps and decays of one chunk of one sequence and head.
template <class Element>
struct ScanSteps {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [rest, head] = row_column(index, scan.sizes.heads);
        const auto [chunk, sequence] = row_column(rest, scan.sizes.batch);
        Sum total = 0;
        for (std::int64_t place = chunk * scan.sizes.chunk; place < scan.end_of(chunk); ++place) {
            const std::int64_t row = scan.row(place, sequence);
            const Sum step = scan.new_step(row, head);
            total += step * scan.rate(head);
            scan.steps[row * scan.sizes.heads + head] = step;
            scan.decays[row * scan.sizes.heads + head] = total;
        }
    }
};

/// One value of one head's state, from chunk to chunk.
template <class Element>
struct ScanStates {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [of_head, value] = row_column(index, s.head_dim * s.state);
        const auto [sequence, head] = row_column(of_head, s.heads);
        const auto [k, m] = row_column(value, s.state);
        Sum state = 0;
        for (std::int64_t chunk = 0; chunk < s.chunks(); ++chunk) {
            scan.states[scan.state_at(chunk, sequence, head) + value] = state;
            const Sum end = scan.decay(scan.row(scan.end_of(chunk) - 1, sequence), head);
            state *= exponential(end);
            for (std::int64_t place = chunk * s.chunk; place < scan.end_of(chunk); ++place) {
                const std::int64_t row = scan.row(place, sequence);
                state += exponential(end - scan.decay(row, head)) * scan.step(row, head) * scan.x(row, head, k) *
                         scan.b(row, head / scan.per_group(), m);
            }
        }
    }
};

/// The gradient of the same value behind each chunk.
template <class Element>
struct ScanStateGradients {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [of_head, value] = row_column(index, s.head_dim * s.state);
        const auto [sequence, head] = row_column(of_head, s.heads);
        const auto [k, m] = row_column(value, s.state);
        Sum gradient = 0;
        for (std::int64_t chunk = s.chunks(); chunk-- > 0;) {
            scan.state_gradients[scan.state_at(chunk, sequence, head) + value] = gradient;
            gradient *= exponential(scan.decay(scan.row(scan.end_of(chunk) - 1, sequence), head));
            for (std::int64_t place = chunk * s.chunk; place < scan.end_of(chunk); ++place) {
                const std::int64_t row = scan.row(place, sequence);
                gradient += exponential(scan.decay(row, head)) * scan.slope(row, head, k) * scan.c(row, head / scan.per_group(), m);
            }
        }
    }
};

/// C_i · B_j for each row i, group and place j of its chunk up to i; with a gradient also Σ over the group's heads of
/// exp(a_i - a_j) dt_j (dy_i · x_j).
template <class Element>
struct ScanPairs {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [rest, other] = row_column(index, s.chunk);
        const auto [row, group] = row_column(rest, s.groups);
        const auto [place, sequence] = row_column(row, s.batch);
        const std::int64_t from_place = place / s.chunk * s.chunk + other;
        if (from_place > place) return;
        const std::int64_t from = scan.row(from_place, sequence);
        Sum score = 0;
        for (std::int64_t m = 0; m < s.state; ++m) score += scan.c(row, group, m) * scan.b(from, group, m);
        scan.scores[index] = score;
        if (scan.dy == nullptr) return;
        Sum sum = 0;
        for (std::int64_t head = group * scan.per_group(); head < (group + 1) * scan.per_group(); ++head) {
            Sum along = 0;
            for (std::int64_t k = 0; k < s.head_dim; ++k) along += scan.slope(row, head, k) * scan.x(from, head, k);
            sum += exponential(scan.decay(row, head) - scan.decay(from, head)) * scan.step(from, head) * along;
        }
        scan.pair_sums[index] = sum;
    }
};

/// What place `place` reads, without the skip: of its chunk and of the state at the chunk's start.
template <class Element>
MGPLAN_BOTH Compute<Element> scan_read(const ScanParts<Element>& scan, std::int64_t place, std::int64_t sequence, std::int64_t head,
                                       std::int64_t k) {
    using Sum = Compute<Element>;
    const model::StateSpaceSizes& s = scan.sizes;
    const std::int64_t row = scan.row(place, sequence), chunk = place / s.chunk, begin = chunk * s.chunk, group = head / scan.per_group();
    const Sum* const state = scan.states + scan.state_at(chunk, sequence, head) + k * s.state;
    Sum from_state = 0, within = 0;
    for (std::int64_t m = 0; m < s.state; ++m) from_state += state[m] * scan.c(row, group, m);
    for (std::int64_t from_place = begin; from_place <= place; ++from_place) {
        const std::int64_t from = scan.row(from_place, sequence);
        within += scan.scores[scan.pair_at(row, group, from_place - begin)] * exponential(scan.decay(row, head) - scan.decay(from, head)) *
                  scan.step(from, head) * scan.x(from, head, k);
    }
    return within + exponential(scan.decay(row, head)) * from_state;
}

template <class Element>
struct ScanOutput {
    ScanParts<Element> scan;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [rest, k] = row_column(index, scan.sizes.head_dim);
        const auto [row, head] = row_column(rest, scan.sizes.heads);
        const auto [place, sequence] = row_column(row, scan.sizes.batch);
        y[index] = Element(scan_read(scan, place, sequence, head, k) + scan.skip_of(head) * scan.x(row, head, k));
    }
};

/// dB and dC of one row, group and value of the state.
template <class Element>
struct ScanMapGradients {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    Element* dx;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [rest, m] = row_column(index, s.state);
        const auto [row, group] = row_column(rest, s.groups);
        const auto [place, sequence] = row_column(row, s.batch);
        const std::int64_t chunk = place / s.chunk, begin = chunk * s.chunk, end = scan.end_of(chunk);
        Sum d_read = 0, d_write = 0;
        for (std::int64_t other = begin; other <= place; ++other)
            d_read += scan.pair_sums[scan.pair_at(row, group, other - begin)] * scan.b(scan.row(other, sequence), group, m);
        for (std::int64_t other = place; other < end; ++other)
            d_write +=
                scan.pair_sums[scan.pair_at(scan.row(other, sequence), group, place - begin)] * scan.c(scan.row(other, sequence), group, m);
        for (std::int64_t head = group * scan.per_group(); head < (group + 1) * scan.per_group(); ++head) {
            const std::int64_t at = scan.state_at(chunk, sequence, head) + m;
            const Sum left = exponential(scan.decay(scan.row(end - 1, sequence), head) - scan.decay(row, head)) * scan.step(row, head);
            const Sum reached = exponential(scan.decay(row, head));
            for (std::int64_t k = 0; k < s.head_dim; ++k) {
                d_read += reached * scan.slope(row, head, k) * scan.states[at + k * s.state];
                d_write += left * scan.x(row, head, k) * scan.state_gradients[at + k * s.state];
            }
        }
        Element* const to = dx + row * s.width() + s.inner() + group * s.state + m;
        to[0] = Element(d_write);
        to[s.groups * s.state] = Element(d_read);
    }
};

/// dx of one row and head; and three sums over its values, each (rows, heads): what later places read of it divided by its step, what it
/// reads itself, its skip.
template <class Element>
struct ScanValueGradients {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    Element* dx;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [row_of, head_of] = row_column(index, s.heads);
        const auto [place_of, sequence_of] = row_column(row_of, s.batch);
        const std::int64_t row = row_of, head = head_of, place = place_of, sequence = sequence_of;
        const std::int64_t chunk = place / s.chunk, begin = chunk * s.chunk, end = scan.end_of(chunk), group = head / scan.per_group();
        const Sum* const d_state = scan.state_gradients + scan.state_at(chunk, sequence, head);
        const Sum left = exponential(scan.decay(scan.row(end - 1, sequence), head) - scan.decay(row, head));
        const auto inner = [&](std::int64_t k) {
            Sum to_state = 0, within = 0;
            for (std::int64_t m = 0; m < s.state; ++m) to_state += d_state[k * s.state + m] * scan.b(row, group, m);
            for (std::int64_t other = place; other < end; ++other) {
                const std::int64_t by = scan.row(other, sequence);
                within += scan.scores[scan.pair_at(by, group, place - begin)] * exponential(scan.decay(by, head) - scan.decay(row, head)) *
                          scan.slope(by, head, k);
            }
            return within + left * to_state;
        };
        team.each(s.head_dim, [&](std::int64_t k) {
            dx[row * s.width() + head * s.head_dim + k] =
                Element(scan.step(row, head) * inner(k) + scan.skip_of(head) * scan.slope(row, head, k));
        });
        const Sum read_of = team.reduce(s.head_dim, Sum{0}, Add{}, [&](std::int64_t k) { return scan.x(row, head, k) * inner(k); });
        const Sum reads = team.reduce(s.head_dim, Sum{0}, Add{},
                                      [&](std::int64_t k) { return scan.slope(row, head, k) * scan_read(scan, place, sequence, head, k); });
        const Sum skipped =
            team.reduce(s.head_dim, Sum{0}, Add{}, [&](std::int64_t k) { return scan.slope(row, head, k) * scan.x(row, head, k); });
        team.once([&] {
            const std::int64_t all = s.rows() * s.heads;
            scan.pair_sums[index] = read_of;
            scan.pair_sums[all + index] = reads;
            scan.pair_sums[2 * all + index] = skipped;
        });
    }
};

/// Gradients of the raw steps of one chunk of one sequence and head, and its part of the sums of dt_bias, A_log and D.
template <class Element>
struct ScanStepGradients {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    Element* d_raw_steps;
    Sum* sums;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [rest, head] = row_column(index, s.heads);
        const auto [chunk, sequence] = row_column(rest, s.batch);
        const std::int64_t all = s.rows() * s.heads;
        Sum behind = 0, bias_sum = 0, decay_sum = 0, skip_sum = 0;
        if (chunk + 1 < s.chunks()) {
            const Sum* const state = scan.states + scan.state_at(chunk + 1, sequence, head);
            const Sum* const gradient = scan.state_gradients + scan.state_at(chunk, sequence, head);
            for (std::int64_t k = 0; k < s.head_dim * s.state; ++k) behind += state[k] * gradient[k];
        }
        for (std::int64_t place = scan.end_of(chunk); place-- > chunk * s.chunk;) {
            const std::int64_t row = scan.row(place, sequence), at = row * s.heads + head;
            const Sum step = scan.steps[at], direct = scan.pair_sums[at];
            behind += scan.pair_sums[all + at] - step * direct;
            const Sum raw = scan.raw(row, head), free = softplus(raw);
            const bool limited = free < static_cast<Sum>(s.step_low) || free > static_cast<Sum>(s.step_high);
            const Sum d_raw = limited ? Sum{0} : (direct + behind * scan.rate(head)) * softplus_slope(raw);
            d_raw_steps[row * scan.step_pitch + scan.step_begin + head] = Element(d_raw);
            bias_sum += d_raw;
            decay_sum += behind * step * scan.rate(head);
            skip_sum += scan.pair_sums[2 * all + at];
        }
        Sum* const to = sums + (chunk * s.batch + sequence) * 3 * s.heads + head;
        to[0] = bias_sum;
        to[s.heads] = decay_sum;
        to[2 * s.heads] = skip_sum;
    }
};

template <class Element, class Arguments>
ScanParts<Element> scan_parts(const Arguments& x) {
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
            values<Sum>(x.states),
            values<Sum>(x.scores)};
}

template <class Launcher, class Element>
void start_scan(Launcher& launcher, const ScanParts<Element>& scan) {
    const model::StateSpaceSizes& s = scan.sizes;
    launcher.each(s.chunks() * s.batch * s.heads, ScanSteps<Element>{scan});
    launcher.each(s.batch * s.heads * s.head_dim * s.state, ScanStates<Element>{scan});
    launcher.each(s.rows() * s.groups * s.chunk, ScanPairs<Element>{scan});
}

template <class Launcher>
void state_space_scan(model::Device& device, const model::StateSpaceArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        const ScanParts<Element> scan = scan_parts<Element>(x);
        start_scan(launcher, scan);
        launcher.each(x.sizes.rows() * x.sizes.inner(), ScanOutput<Element>{scan, values<Element>(x.y)});
    });
}

template <class Launcher>
void state_space_scan_backward(model::Device& device, const model::StateSpaceBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const model::StateSpaceSizes& s = x.sizes;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        ScanParts<Element> scan = scan_parts<Element>(x);
        scan.dy = values<Element>(x.dy);
        scan.state_gradients = values<Sum>(x.state_gradients);
        scan.pair_sums = values<Sum>(x.pair_sums);
        start_scan(launcher, scan);
        launcher.each(s.batch * s.heads * s.head_dim * s.state, ScanStateGradients<Element>{scan});
        launcher.each(s.rows() * s.groups * s.state, ScanMapGradients<Element>{scan, values<Element>(x.dx)});
        // From here on the pair sums hold the sums of rows.
        launcher.teams(s.rows() * s.heads, lanes_for(s.head_dim), ScanValueGradients<Element>{scan, values<Element>(x.dx)});
        if (s.fixed.used()) return;
        launcher.each(s.chunks() * s.batch * s.heads,
                      ScanStepGradients<Element>{scan, values<Element>(x.d_raw_steps), values<Sum>(x.sums)});
    });
    if (s.fixed.used()) return;
    std::int64_t begin = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient, &x.skip_gradient}) {
        add_column_sums(launcher, x.x.dtype, x.sums, begin, 3 * s.heads, s.chunks() * s.batch, s.heads, *gradient);
        begin += s.heads;
    }
}

}  // namespace mgplan::runtime::cuda
