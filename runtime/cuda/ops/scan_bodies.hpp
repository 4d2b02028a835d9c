#pragma once
// The kernels between the products of a scan by chunks: see state_space.hpp.

#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/ops/packs.hpp"

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
    Sum* pair_sums = nullptr;  ///< (3, rows, heads) of it

    [[nodiscard]] MGPLAN_BOTH std::int64_t per_group() const { return sizes.heads / sizes.groups; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t row(std::int64_t place, std::int64_t sequence) const { return place * sizes.batch + sequence; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t end_of(std::int64_t chunk) const {
        const std::int64_t end = (chunk + 1) * sizes.chunk;
        return end < sizes.places ? end : sizes.places;
    }
    [[nodiscard]] MGPLAN_BOTH Sum x(std::int64_t row, std::int64_t head, std::int64_t k) const {
        return mixed[row * sizes.width() + head * sizes.head_dim + k];
    }
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
};

/// Steps and decays of one chunk of one sequence and head: a decay sums those of the chunk's places so far.
template <class Element>
struct ScanSteps {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [rest, head_of] = row_column(index, scan.sizes.heads);
        const auto [chunk, sequence_of] = row_column(rest, scan.sizes.batch);
        const std::int64_t head = head_of, sequence = sequence_of, begin = chunk * scan.sizes.chunk, end = scan.end_of(chunk);
        const auto at = [&](std::int64_t i) { return scan.row(begin + i, sequence) * scan.sizes.heads + head; };
        team.each(end - begin, [&](std::int64_t i) {
            const Sum step = scan.new_step(scan.row(begin + i, sequence), head);
            scan.steps[at(i)] = step;
            scan.decays[at(i)] = step * scan.rate(head);
        });
        team.barrier();
        team.once([&] {
            Sum total = 0;
            for (std::int64_t i = 0; i < end - begin; ++i) {
                total += scan.decays[at(i)];
                scan.decays[at(i)] = total;
            }
        });
    }
};

/// Whole chunks of `length` places, or the last, that are worked on at once; a "matrix" is one of them in one sequence.
template <class Element>
struct ScanBlock {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    std::int64_t first = 0, count = 0, length = 0;
    // As ScanWorkspace has them; those of the backward are nullptr in a forward.
    Element *writes = nullptr, *reads = nullptr, *values = nullptr, *slopes = nullptr, *left = nullptr, *reached = nullptr;
    Element *weights = nullptr, *pairs = nullptr;
    Sum *of_states = nullptr, *to_states = nullptr, *along = nullptr, *within = nullptr, *inner = nullptr;
    Sum *d_writes = nullptr, *d_reads = nullptr;

    [[nodiscard]] MGPLAN_BOTH std::int64_t matrices() const { return count * scan.sizes.batch; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t rows() const { return matrices() * length; }
    [[nodiscard]] MGPLAN_BOTH std::int64_t row(std::int64_t matrix, std::int64_t i) const {
        const auto [chunk, sequence] = row_column(matrix, scan.sizes.batch);
        return scan.row((first + chunk) * scan.sizes.chunk + i, sequence);
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t by_head(std::int64_t matrix, std::int64_t i, std::int64_t head) const {
        return ((matrix * scan.sizes.heads + head) * length + i) * scan.sizes.head_dim;
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t by_group(std::int64_t matrix, std::int64_t i, std::int64_t head) const {
        const std::int64_t group = head / scan.per_group();
        return (((matrix * scan.sizes.groups + group) * length + i) * scan.per_group() + head - group * scan.per_group()) *
               scan.sizes.head_dim;
    }
    /// The states in front of the block's chunks; matrices (heads of a group · head_dim, state).
    [[nodiscard]] MGPLAN_BOTH std::int64_t states_at() const { return scan.state_at(first, 0, 0); }
    /// Scores (matrix, group, length, length), in the array of all rows' pairs: a block needs at most the part of its rows.
    [[nodiscard]] MGPLAN_BOTH Sum* scores() const {
        return scan.scores + scan.row(first * scan.sizes.chunk, 0) * scan.sizes.groups * scan.sizes.chunk;
    }
};

/// B and C of each group.
template <class Element>
struct ScanMaps {
    ScanBlock<Element> block;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = block.scan.sizes;
        const auto [rest, m] = row_column(index, s.state);
        const auto [matrix_group, i] = row_column(rest, block.length);
        const auto [matrix, group] = row_column(matrix_group, s.groups);
        const Element* const from = block.scan.mixed + block.row(matrix, i) * s.width() + s.inner() + group * s.state + m;
        block.writes[index] = from[0];
        block.reads[index] = from[s.groups * s.state];
    }
};

/// The place of value `index` of a block's rows.
template <class Element>
struct ScanPlace {
    std::int64_t row, head, k, by_head, by_group, last_row;
    MGPLAN_BOTH ScanPlace(const ScanBlock<Element>& block, std::int64_t index) {
        const auto [rest, value] = row_column(index, block.scan.sizes.head_dim);
        const auto [place, of_head] = row_column(rest, block.scan.sizes.heads);
        const auto [matrix, i] = row_column(place, block.length);
        head = of_head;
        k = value;
        row = block.row(matrix, i);
        last_row = block.row(matrix, block.length - 1);
        by_head = block.by_head(matrix, i, head) + k;
        by_group = block.by_group(matrix, i, head) + k;
    }
};

/// x times steps, what is left of that at the chunk's end, dy, and what reaches the state in front of dy: those that there is room for.
/// A pack is of one row and head.
template <class Element>
struct ScanValues {
    using Sum = Compute<Element>;
    ScanBlock<Element> block;

    template <int N>
    struct Loaded {
        Pack<Element, N> x, dy;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t index) const {
        const ScanPlace<Element> at(block, index);
        const model::StateSpaceSizes& s = block.scan.sizes;
        Loaded<N> loaded{};
        loaded.x = load_pack<N>(block.scan.mixed + at.row * s.width() + at.head * s.head_dim + at.k);
        if (block.reached != nullptr) loaded.dy = load_pack<N>(block.scan.dy + at.row * s.inner() + at.head * s.head_dim + at.k);
        return loaded;
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Loaded<N>& loaded) const {
        const ScanParts<Element>& scan = block.scan;
        const ScanPlace<Element> at(block, index);
        const Sum decay = scan.decay(at.row, at.head), step = scan.step(at.row, at.head);
        Pack<Element, N> result;
        if (block.values != nullptr) {
            for (int n = 0; n < N; ++n) result[n] = Element(step * Sum(loaded.x[n]));
            store_pack<N>(block.values + at.by_head, result);
        }
        if (block.left != nullptr) {
            const Sum weight = exponential(scan.decay(at.last_row, at.head) - decay) * step;
            for (int n = 0; n < N; ++n) result[n] = Element(weight * Sum(loaded.x[n]));
            store_pack<N>(block.left + at.by_group, result);
        }
        if (block.slopes != nullptr) store_pack<N>(block.slopes + at.by_head, loaded.dy);
        if (block.reached != nullptr) {
            const Sum weight = exponential(decay);
            for (int n = 0; n < N; ++n) result[n] = Element(weight * Sum(loaded.dy[n]));
            store_pack<N>(block.reached + at.by_group, result);
        }
    }
};

/// Turns the amounts that chunks add to one value of one head's state into that value before each chunk; for gradients, after each.
template <class Element>
struct ScanStates {
    using Sum = Compute<Element>;
    ScanParts<Element> scan;
    Sum* states;
    bool gradients;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [of_head, value] = row_column(index, s.head_dim * s.state);
        const auto [sequence, head] = row_column(of_head, s.heads);
        Sum state = 0;
        for (std::int64_t step = 0; step < s.chunks(); ++step) {
            const std::int64_t chunk = gradients ? s.chunks() - 1 - step : step;
            Sum& at = states[scan.state_at(chunk, sequence, head) + value];
            const Sum added = at;
            at = state;
            state = state * exponential(scan.decay(scan.row(scan.end_of(chunk) - 1, sequence), head)) + added;
        }
    }
};

/// To a narrower type, as factors of a product.
template <class Element>
struct RoundStates {
    const Compute<Element>* from;
    Element* to;

    template <int N>
    MGPLAN_BOTH Pack<Compute<Element>, N> load(std::int64_t i) const {
        return load_pack<N>(from + i);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, const Pack<Compute<Element>, N>& values) const {
        Pack<Element, N> rounded;
        for (int n = 0; n < N; ++n) rounded[n] = Element(values[n]);
        store_pack<N>(to + i, rounded);
    }
};

/// For each head exp(a_i - a_j) (C_i · B_j) of places j up to i, zeros after i; in a backward also, for each group, the sum over its heads
/// of exp(a_i - a_j) (dy_i · dt_j x_j).
template <class Element>
struct ScanWeights {
    using Sum = Compute<Element>;
    ScanBlock<Element> block;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const ScanParts<Element>& scan = block.scan;
        const auto [rest, j] = row_column(index, block.length);
        const auto [matrix_group, i] = row_column(rest, block.length);
        const auto [matrix, group] = row_column(matrix_group, scan.sizes.groups);
        const std::int64_t row = block.row(matrix, i), from = block.row(matrix, j), heads = scan.per_group();
        const Sum score = block.scores()[index];
        Sum sum = 0;
        for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
            const std::int64_t at = ((matrix * scan.sizes.heads + head) * block.length + i) * block.length + j;
            // For j > i the exponential may be infinite.
            const Sum kept = j <= i ? exponential(scan.decay(row, head) - scan.decay(from, head)) : Sum{0};
            block.weights[at] = j <= i ? Element(kept * score) : Element(Sum{0});
            if (block.along != nullptr && j <= i) sum += kept * block.along[at];
        }
        if (block.pairs != nullptr) block.pairs[index] = Element(sum);
    }
};

template <class Element>
struct ScanOutput {
    using Sum = Compute<Element>;
    ScanBlock<Element> block;
    Element* y;

    template <int N>
    struct Loaded {
        Pack<Sum, N> within, of_states;
        Pack<Element, N> x;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t index) const {
        const ScanPlace<Element> at(block, index);
        const model::StateSpaceSizes& s = block.scan.sizes;
        return {load_pack<N>(block.within + at.by_head), load_pack<N>(block.of_states + at.by_group),
                load_pack<N>(block.scan.mixed + at.row * s.width() + at.head * s.head_dim + at.k)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Loaded<N>& loaded) const {
        const ScanParts<Element>& scan = block.scan;
        const ScanPlace<Element> at(block, index);
        const Sum reached = exponential(scan.decay(at.row, at.head)), skip = scan.skip_of(at.head);
        Pack<Element, N> result;
        for (int n = 0; n < N; ++n) result[n] = Element(loaded.within[n] + reached * loaded.of_states[n] + skip * Sum(loaded.x[n]));
        store_pack<N>(y + at.row * scan.sizes.inner() + at.head * scan.sizes.head_dim + at.k, result);
    }
};

/// dB and dC to their columns.
template <class Element>
struct ScanMapGradients {
    ScanBlock<Element> block;
    Element* dx;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const model::StateSpaceSizes& s = block.scan.sizes;
        const auto [rest, m] = row_column(index, s.state);
        const auto [matrix_group, i] = row_column(rest, block.length);
        const auto [matrix, group] = row_column(matrix_group, s.groups);
        Element* const to = dx + block.row(matrix, i) * s.width() + s.inner() + group * s.state + m;
        to[0] = Element(block.d_writes[index]);
        to[s.groups * s.state] = Element(block.d_reads[index]);
    }
};

/// dx of one row and head; and three sums over its values, each (rows, heads): what later places read of it divided by its step, what it
/// reads itself less what they read of it, its skip. The second is a small difference of sums that are added up along a chunk: both are
/// of the products' own, rounded factors.
template <class Element>
struct ScanValueGradients {
    using Sum = Compute<Element>;
    ScanBlock<Element> block;
    Element* dx;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const ScanParts<Element>& scan = block.scan;
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [place, head_of] = row_column(index, s.heads);
        const auto [matrix, i] = row_column(place, block.length);
        const std::int64_t head = head_of, row = block.row(matrix, i);
        const std::int64_t by_head = block.by_head(matrix, i, head), by_group = block.by_group(matrix, i, head);
        const Sum reached = exponential(scan.decay(row, head));
        const Sum left = exponential(scan.decay(block.row(matrix, block.length - 1), head) - scan.decay(row, head));
        const auto read_later = [&](std::int64_t k) { return block.inner[by_head + k] + left * block.to_states[by_group + k]; };
        const Sum read_of = team.reduce(s.head_dim, Sum{0}, Add{}, [&](std::int64_t k) {
            const Sum later = read_later(k);
            dx[row * s.width() + head * s.head_dim + k] =
                Element(scan.step(row, head) * later + scan.skip_of(head) * scan.slope(row, head, k));
            return scan.x(row, head, k) * later;
        });
        const Sum reads = team.reduce(s.head_dim, Sum{0}, Add{}, [&](std::int64_t k) {
            return scan.slope(row, head, k) * (block.within[by_head + k] + reached * block.of_states[by_group + k]) -
                   Sum(block.values[by_head + k]) * block.inner[by_head + k] -
                   Sum(block.left[by_group + k]) * block.to_states[by_group + k];
        });
        const Sum skipped =
            team.reduce(s.head_dim, Sum{0}, Add{}, [&](std::int64_t k) { return scan.slope(row, head, k) * scan.x(row, head, k); });
        team.once([&] {
            const std::int64_t all = s.rows() * s.heads, at = row * s.heads + head;
            scan.pair_sums[at] = read_of;
            scan.pair_sums[all + at] = reads;
            scan.pair_sums[2 * all + at] = skipped;
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

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const model::StateSpaceSizes& s = scan.sizes;
        const auto [rest, head_of] = row_column(index, s.heads);
        const auto [chunk_of, sequence_of] = row_column(rest, s.batch);
        const std::int64_t head = head_of, sequence = sequence_of, chunk = chunk_of;
        const std::int64_t begin = chunk * s.chunk, places = scan.end_of(chunk) - begin;
        const std::int64_t all = s.rows() * s.heads;
        Sum* const behind = scan.pair_sums + all;  // first each place's term, then the sum of the terms from the place on
        const auto row = [&](std::int64_t i) { return scan.row(begin + i, sequence); };
        Sum at_end = 0;
        if (chunk + 1 < s.chunks()) {
            const Sum* const state = scan.states + scan.state_at(chunk + 1, sequence, head);
            const Sum* const gradient = scan.state_gradients + scan.state_at(chunk, sequence, head);
            at_end = team.reduce(s.head_dim * s.state, Sum{0}, Add{}, [&](std::int64_t k) { return state[k] * gradient[k]; });
        }
        team.once([&] {
            Sum sum = at_end;
            for (std::int64_t i = places; i-- > 0;) {
                const std::int64_t at = row(i) * s.heads + head;
                sum += behind[at];
                behind[at] = sum;
            }
        });
        team.barrier();
        const Sum bias_sum = team.reduce(places, Sum{0}, Add{}, [&](std::int64_t i) {
            const Sum raw = scan.raw(row(i), head), free = softplus(raw);
            const std::int64_t at = row(i) * s.heads + head;
            const bool limited = free < static_cast<Sum>(s.step_low) || free > static_cast<Sum>(s.step_high);
            const Sum d_raw = limited ? Sum{0} : (scan.pair_sums[at] + behind[at] * scan.rate(head)) * softplus_slope(raw);
            d_raw_steps[row(i) * scan.step_pitch + scan.step_begin + head] = Element(d_raw);
            return d_raw;
        });
        const Sum decay_sum = team.reduce(places, Sum{0}, Add{}, [&](std::int64_t i) {
            const std::int64_t at = row(i) * s.heads + head;
            return behind[at] * scan.steps[at] * scan.rate(head);
        });
        const Sum skip_sum =
            team.reduce(places, Sum{0}, Add{}, [&](std::int64_t i) { return scan.pair_sums[2 * all + row(i) * s.heads + head]; });
        team.once([&] {
            Sum* const to = sums + (chunk * s.batch + sequence) * 3 * s.heads + head;
            to[0] = bias_sum;
            to[s.heads] = decay_sum;
            to[2 * s.heads] = skip_sum;
        });
    }
};

}  // namespace mgplan::runtime::cuda
