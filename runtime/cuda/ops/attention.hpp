#pragma once
// See model/ops/attention.hpp. One fused kernel of a library where it can; otherwise separate products around a softmax,
// for blocks of query places and all sequences and heads at once, with whatever positions the rows have.

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/fused_attention.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Which keys a query of a block sees. A row of scores belongs to (sequence · head, place in the block).
struct ScoreRows {
    model::Positions queries, keys;
    std::int64_t heads, first_place, block, window;

    /// Row of (query rows, heads) that a row of scores belongs to.
    MGPLAN_BOTH std::int64_t query_row(std::int64_t row) const { return (first_place + row % block) * queries.batch * heads + row / block; }
    MGPLAN_BOTH bool sees(std::int64_t row, std::int64_t key) const {
        const std::int64_t before = queries.at(first_place + row % block) - keys.at(key);
        return before >= 0 && (window == 0 || before < window);
    }
};

/// Returns a scaled score after the soft cap; cap 0: none.
template <class Sum>
MGPLAN_BOTH Sum capped(Sum score, Sum cap) {
    return cap > 0 ? cap * hyperbolic_tangent(score / cap) : score;
}

/// Turns scores (times scale, capped) into probabilities and keeps the log-sum-exp; -inf and zeros where a row sees no key.
template <class Sum, class Weight>
struct SoftmaxScores {
    Sum* scores;
    Weight* weights;  ///< may be the scores themselves
    Sum* log_sum_exp;
    ScoreRows rows;
    std::int64_t key_places;
    Sum scale, cap;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        Sum* const score = scores + row * key_places;
        Weight* const weight = weights + row * key_places;
        const Sum nothing = -infinity<Sum>();
        const Sum most = team.reduce(key_places, nothing, Larger{},
                                     [&](std::int64_t i) { return rows.sees(row, i) ? capped(score[i] * scale, cap) : nothing; });
        const Sum base = most == nothing ? Sum{0} : most;
        const Sum sum = team.reduce(key_places, Sum{0}, Add{}, [&](std::int64_t i) {
            return rows.sees(row, i) ? exponential(capped(score[i] * scale, cap) - base) : Sum{0};
        });
        team.each(key_places, [&](std::int64_t i) {
            weight[i] = Weight(sum == 0 || !rows.sees(row, i) ? Sum{0} : exponential(capped(score[i] * scale, cap) - base) / sum);
        });
        team.once([&] { log_sum_exp[rows.query_row(row)] = sum == 0 ? nothing : base + logarithm(sum); });
    }
};

/// P = exp(scale · score - log-sum-exp) and dS = scale · P · (dP - D) with D = the row sum of output times its gradient.
template <class Element, class Weight>
struct SoftmaxScoresBackward {
    using Sum = Compute<Element>;
    Sum *scores, *d_scores;
    Weight *weights, *d_weights;  ///< may be the two themselves
    const Sum* log_sum_exp;
    const Element *output, *d_output;
    ScoreRows rows;
    std::int64_t key_places, v_dim;
    Sum scale, cap;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const std::int64_t query = rows.query_row(row);
        const Element* const out = output + query * v_dim;
        const Element* const d_out = d_output + query * v_dim;
        const Sum share = team.reduce(v_dim, Sum{0}, Add{}, [&](std::int64_t i) { return Sum(out[i]) * Sum(d_out[i]); });
        const Sum kept = log_sum_exp[query];
        team.each(key_places, [&](std::int64_t i) {
            const std::int64_t at = row * key_places + i;
            const bool seen = rows.sees(row, i);
            const Sum score = capped(scores[at] * scale, cap), level = cap > 0 ? score / cap : Sum{0};
            const Sum p = seen ? exponential(score - kept) : Sum{0};
            const Sum ds = seen ? p * (d_scores[at] - share) * scale * (1 - level * level) : Sum{0};
            weights[at] = Weight(p);
            d_weights[at] = Weight(ds);
        });
    }
};

/// (rows, width) to the first values of every `group`.
template <class Sum, class Element>
struct RoundTo {
    const Sum* from;
    Element* to;
    std::int64_t width, group;
    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, column] = row_column(i, width);
        to[row * group + column] = Element(from[i]);
    }
};

/// An array (places, sequences · kv heads, group): each group begins with the values of a kv head, or with those of its query heads
/// one after another.
template <class Memory>
struct GroupedRows {
    Memory* memory;
    std::int64_t group;
};

/// The products of one query block. Each query head of a group is multiplied in a call of its own, so that the matrices of a call lie
/// at equal distances.
template <class Launcher>
struct BlockProducts {
    Launcher& launcher;
    const model::AttentionSizes& sizes;
    Dtype dtype;
    std::byte* workspace;
    const model::AttentionWorkspace& space;
    std::int64_t first_place, places;

    [[nodiscard]] std::int64_t batch() const { return sizes.query_positions.batch; }
    [[nodiscard]] std::int64_t key_places() const { return sizes.key_positions.places(); }
    [[nodiscard]] std::int64_t group() const { return sizes.group_heads(); }
    /// Elements from a place to the next one.
    template <class Memory>
    [[nodiscard]] std::int64_t pitch(const GroupedRows<Memory>& array) const {
        return batch() * sizes.kv_heads * array.group;
    }
    /// The block's first place of the queries' member.
    template <class Memory>
    [[nodiscard]] Memory* of_member(const GroupedRows<Memory>& array, std::int64_t width, std::int64_t member) const {
        return array.memory + (first_place * pitch(array) + member * width) * bytes_of(dtype);
    }
    [[nodiscard]] Gemm start() const {
        Gemm gemm;
        gemm.input = dtype;
        gemm.batch = batch() * sizes.kv_heads;
        gemm.workspace = workspace + space.library;
        gemm.workspace_bytes = space.library_bytes;
        return gemm;
    }

    /// scores (places, keys) = queries (places, width) · keysᵀ
    void score(const GroupedRows<const std::byte>& queries, const GroupedRows<const std::byte>& keys, std::int64_t width,
               std::byte* scores) const {
        const Dtype wide = model::statistics_dtype(dtype);
        for (std::int64_t member = 0; member < group(); ++member) {
            Gemm gemm = start();
            gemm.transpose_b = true;
            gemm.m = places;
            gemm.n = key_places();
            gemm.k = width;
            gemm.output = wide;
            gemm.a = of_member(queries, width, member);
            gemm.a_pitch = pitch(queries);
            gemm.a_stride = queries.group;
            gemm.b = keys.memory;
            gemm.b_pitch = pitch(keys);
            gemm.b_stride = keys.group;
            gemm.c = scores + member * places * key_places() * bytes_of(wide);
            gemm.c_pitch = key_places();
            gemm.c_stride = group() * places * key_places();
            launcher.gemm(gemm);
        }
    }

    /// out (places, width) = weights (places, keys) · rows (keys, width)
    void weigh(const std::byte* weights, const GroupedRows<const std::byte>& rows, std::int64_t width,
               const GroupedRows<std::byte>& out) const {
        for (std::int64_t member = 0; member < group(); ++member) {
            Gemm gemm = start();
            gemm.m = places;
            gemm.n = width;
            gemm.k = key_places();
            gemm.output = dtype;
            gemm.a = weights + member * places * key_places() * bytes_of(dtype);
            gemm.a_pitch = key_places();
            gemm.a_stride = group() * places * key_places();
            gemm.b = rows.memory;
            gemm.b_pitch = pitch(rows);
            gemm.b_stride = rows.group;
            gemm.c = of_member(out, width, member);
            gemm.c_pitch = pitch(out);
            gemm.c_stride = out.group;
            launcher.gemm(gemm);
        }
    }

    /// sums (keys, width) += weightsᵀ (keys, places) · rows (places, width), in the statistics' type
    void collect(const std::byte* weights, const GroupedRows<const std::byte>& rows, std::int64_t width, const GroupedRows<std::byte>& sums,
                 bool first_block) const {
        for (std::int64_t member = 0; member < group(); ++member) {
            Gemm gemm = start();
            gemm.transpose_a = true;
            gemm.m = key_places();
            gemm.n = width;
            gemm.k = places;
            gemm.beta = first_block && member == 0 ? 0 : 1;
            gemm.output = model::statistics_dtype(dtype);
            gemm.a = weights + member * places * key_places() * bytes_of(dtype);
            gemm.a_pitch = key_places();
            gemm.a_stride = group() * places * key_places();
            gemm.b = of_member(rows, width, member);
            gemm.b_pitch = pitch(rows);
            gemm.b_stride = rows.group;
            gemm.c = sums.memory;
            gemm.c_pitch = pitch(sums);
            gemm.c_stride = sums.group;
            launcher.gemm(gemm);
        }
    }
};

inline const std::byte* bytes(const model::Input& input) {
    return static_cast<const std::byte*>(input.data);
}
inline std::byte* bytes(const model::Output& output) {
    return static_cast<std::byte*>(output.data);
}

/// Type of the probabilities in products.
template <class Element>
using Weight = std::conditional_t<std::is_same_v<Element, Bf16>, Bf16, Compute<Element>>;

template <class Launcher, class Element>
void unfused_attention(Launcher& launcher, const model::AttentionArguments& x, const model::AttentionWorkspace& space,
                       std::byte* workspace) {
    using Sum = Compute<Element>;
    const std::int64_t all = x.sizes.query_positions.places();
    std::byte* const scores = workspace + space.scores;
    std::byte* const weights = space.weights >= 0 ? workspace + space.weights : scores;
    const model::AttentionSizes& sizes = x.sizes;
    const GroupedRows<const std::byte> q{bytes(x.q), sizes.query_group()}, k{bytes(x.k), sizes.key_group()},
        v{bytes(x.v), sizes.value_group()};
    const GroupedRows<std::byte> output{bytes(x.output), sizes.output_group()};
    for (std::int64_t place = 0; place < all; place += space.block) {
        const BlockProducts<Launcher> block{launcher, x.sizes, x.q.dtype, workspace, space, place, std::min(space.block, all - place)};
        block.score(q, k, sizes.qk_dim, scores);
        launcher.teams(block.places * block.batch() * x.sizes.heads, lanes_for(block.key_places()),
                       SoftmaxScores<Sum, Weight<Element>>{
                           reinterpret_cast<Sum*>(scores), reinterpret_cast<Weight<Element>*>(weights), values<Sum>(x.log_sum_exp),
                           ScoreRows{x.sizes.query_positions, x.sizes.key_positions, x.sizes.heads, place, block.places, x.sizes.window},
                           block.key_places(), static_cast<Sum>(x.sizes.scale), static_cast<Sum>(x.sizes.soft_cap)});
        block.weigh(weights, v, sizes.v_dim, output);
    }
}

template <class Launcher, class Element>
void unfused_attention_backward(Launcher& launcher, const model::AttentionBackwardArguments& x, const model::AttentionWorkspace& space,
                                std::byte* workspace) {
    using Sum = Compute<Element>;
    const std::int64_t all = x.sizes.query_positions.places();
    std::byte* const scores = workspace + space.scores;
    std::byte* const d_scores = workspace + space.d_scores;
    const bool rounded = space.weights >= 0;
    std::byte* const weights = rounded ? workspace + space.weights : scores;
    std::byte* const d_weights = rounded ? workspace + space.d_weights : d_scores;
    const model::AttentionSizes& sizes = x.sizes;
    const GroupedRows<const std::byte> q{bytes(x.q), sizes.query_group()}, k{bytes(x.k), sizes.key_group()},
        v{bytes(x.v), sizes.value_group()}, d_output{bytes(x.d_output), sizes.output_group()};
    const GroupedRows<std::byte> dq{bytes(x.dq), sizes.query_group()};
    const auto sums = [&](std::int64_t own, std::int64_t width, const model::Output& gradient, std::int64_t group) {
        return rounded ? GroupedRows<std::byte>{workspace + own, width} : GroupedRows<std::byte>{bytes(gradient), group};
    };
    const GroupedRows<std::byte> key_sums = sums(space.key_sums, sizes.qk_dim, x.dk, sizes.key_group());
    const GroupedRows<std::byte> value_sums = sums(space.value_sums, sizes.v_dim, x.dv, sizes.value_group());
    for (std::int64_t place = 0; place < all; place += space.block) {
        const BlockProducts<Launcher> block{launcher, x.sizes, x.q.dtype, workspace, space, place, std::min(space.block, all - place)};
        block.score(q, k, sizes.qk_dim, scores);
        block.score(d_output, v, sizes.v_dim, d_scores);
        launcher.teams(block.places * block.batch() * x.sizes.heads, lanes_for(block.key_places()),
                       SoftmaxScoresBackward<Element, Weight<Element>>{
                           reinterpret_cast<Sum*>(scores), reinterpret_cast<Sum*>(d_scores), reinterpret_cast<Weight<Element>*>(weights),
                           reinterpret_cast<Weight<Element>*>(d_weights), values<Sum>(x.log_sum_exp), values<Element>(x.output),
                           values<Element>(x.d_output),
                           ScoreRows{x.sizes.query_positions, x.sizes.key_positions, x.sizes.heads, place, block.places, x.sizes.window},
                           block.key_places(), x.sizes.v_dim, static_cast<Sum>(x.sizes.scale), static_cast<Sum>(x.sizes.soft_cap)});
        block.collect(weights, d_output, sizes.v_dim, value_sums, place == 0);
        block.collect(d_weights, q, sizes.qk_dim, key_sums, place == 0);
        block.weigh(d_weights, k, sizes.qk_dim, dq);
    }
    if (!rounded) return;
    const std::int64_t rows = x.sizes.key_positions.places() * x.sizes.query_positions.batch * x.sizes.kv_heads;
    launcher.each(rows * sizes.qk_dim, RoundTo<Sum, Element>{reinterpret_cast<const Sum*>(key_sums.memory), values<Element>(x.dk),
                                                             sizes.qk_dim, sizes.key_group()});
    launcher.each(rows * sizes.v_dim, RoundTo<Sum, Element>{reinterpret_cast<const Sum*>(value_sums.memory), values<Element>(x.dv),
                                                            sizes.v_dim, sizes.value_group()});
}

/// Calls work(space, memory) with the workspace of the separate products: the op's own, or, where the op brought one for a
/// fused kernel that refused its arrays' addresses or a shape not checked before (KernelTraits::fused_plans), an additional one. No
/// prediction has that one, and the measurement shows it.
template <class Work>
void with_unfused_workspace(model::Device& device, Dtype dtype, const model::AttentionSizes& sizes, bool backward, bool predicted,
                            const model::Output& workspace, Work work) {
    const auto space = model::attention_workspace(device.traits(), dtype, sizes, backward, false);
    model::Tensor extra;
    if (!predicted) extra = model::take_scratch(device, space.total, "attention workspace after a refusal");
    work(space, static_cast<std::byte*>(predicted ? workspace.data : extra.data()));
}

/// (sequences · heads, places) to (places, sequences · heads), or back.
struct TransposeStatistics {
    const float* from;
    float* to;
    std::int64_t rows, columns;  ///< of the result
    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, column] = row_column(i, columns);
        to[i] = from[column * rows + row];
    }
};

/// The parts before and after some places of an array (places, sequences · heads, width).
struct Outside {
    std::int64_t places, first, count;  ///< of the array; of those that are not outside
    std::int64_t place_bytes;

    template <class Launcher>
    void zero(Launcher& launcher, void* array) const {
        auto* const bytes = static_cast<std::byte*>(array);
        if (first > 0) launcher.zero(bytes, first * place_bytes);
        if (const std::int64_t behind = places - first - count; behind > 0)
            launcher.zero(bytes + (first + count) * place_bytes, behind * place_bytes);
    }
};

/// Writes -inf wherever no key was seen: before and after some rows.
struct HideStatistics {
    float* log_sum_exp;
    std::int64_t first, count;  ///< of the rows that saw keys
    MGPLAN_BOTH void operator()(std::int64_t i) const { log_sum_exp[i < first ? i : i + count] = -infinity<float>(); }
};

/// The part of the arguments that the library works on, and where the rest lies.
struct FusedArrays {
    const model::AttentionSizes& sizes;
    const model::FusedPart& part;

    [[nodiscard]] std::int64_t query_rows() const { return sizes.query_positions.batch * sizes.heads; }  ///< of a place
    [[nodiscard]] std::int64_t key_rows() const { return sizes.query_positions.batch * sizes.kv_heads; }
    template <class Array>
    [[nodiscard]] Array queries(Array array, std::int64_t width) const {
        return behind(array, part.first_query * query_rows() * width);
    }
    template <class Array>
    [[nodiscard]] Array keys(Array array, std::int64_t width) const {
        return behind(array, part.first_key * key_rows() * width);
    }
    [[nodiscard]] Outside other_queries(std::int64_t width) const {
        return {sizes.query_positions.places(), part.first_query, part.queries, query_rows() * width * bytes_of(Dtype::bf16)};
    }
    [[nodiscard]] Outside other_keys(std::int64_t width) const {
        return {sizes.key_positions.places(), part.first_key, part.keys, key_rows() * width * bytes_of(Dtype::bf16)};
    }
};

/// false where the library is absent or refuses; nothing has happened then.
template <class Launcher>
bool fused_attention(Launcher& launcher, const model::KernelTraits& traits, const model::AttentionArguments& x,
                     const model::FusedPart& part) {
    FusedLibrary* const library = launcher.library();
    if (library == nullptr) return false;
    const auto space = model::attention_workspace(traits, x.q.dtype, x.sizes, false, true);
    const FusedShape shape = model::fused_shape(x.sizes, part, false);
    const FusedArrays arrays{x.sizes, part};
    auto* const workspace = values<std::byte>(x.workspace);
    FusedMemory memory;
    memory.q = arrays.queries(x.q, x.sizes.qk_dim).data;
    memory.k = arrays.keys(x.k, x.sizes.qk_dim).data;
    memory.v = arrays.keys(x.v, x.sizes.v_dim).data;
    memory.output = arrays.queries(x.output, x.sizes.v_dim).data;
    memory.log_sum_exp = workspace + space.log_sum_exp;
    memory.workspace = workspace + space.library;
    memory.workspace_bytes = space.library_bytes;
    if (!library->accepts(shape, memory)) return false;
    library->run(shape, memory, x.sizes.scale);
    const std::int64_t rows = arrays.query_rows(), all = x.sizes.query_positions.places() * rows, seen = part.queries * rows;
    launcher.each(seen, TransposeStatistics{static_cast<const float*>(memory.log_sum_exp), values<float>(arrays.queries(x.log_sum_exp, 1)),
                                            part.queries, rows});
    if (seen < all) launcher.each(all - seen, HideStatistics{values<float>(x.log_sum_exp), part.first_query * rows, seen});
    arrays.other_queries(x.sizes.v_dim).zero(launcher, x.output.data);
    return true;
}

template <class Launcher>
bool fused_attention_backward(Launcher& launcher, const model::KernelTraits& traits, const model::AttentionBackwardArguments& x,
                              const model::FusedPart& part) {
    FusedLibrary* const library = launcher.library();
    if (library == nullptr) return false;
    const auto space = model::attention_workspace(traits, x.q.dtype, x.sizes, true, true);
    const FusedShape shape = model::fused_shape(x.sizes, part, true);
    const FusedArrays arrays{x.sizes, part};
    auto* const workspace = values<std::byte>(x.workspace);
    FusedMemory memory;
    memory.q = arrays.queries(x.q, x.sizes.qk_dim).data;
    memory.k = arrays.keys(x.k, x.sizes.qk_dim).data;
    memory.v = arrays.keys(x.v, x.sizes.v_dim).data;
    memory.output = const_cast<void*>(arrays.queries(x.output, x.sizes.v_dim).data);
    memory.log_sum_exp = workspace + space.log_sum_exp;
    memory.d_output = arrays.queries(x.d_output, x.sizes.v_dim).data;
    memory.dq = arrays.queries(x.dq, x.sizes.qk_dim).data;
    memory.dk = arrays.keys(x.dk, x.sizes.qk_dim).data;
    memory.dv = arrays.keys(x.dv, x.sizes.v_dim).data;
    memory.delta = workspace + space.delta;
    memory.query_sums = workspace + space.query_sums;
    memory.workspace = workspace + space.library;
    memory.workspace_bytes = space.library_bytes;
    if (!library->accepts(shape, memory)) return false;
    const std::int64_t rows = arrays.query_rows();
    // Over ALL keys of the row: the library's weights are then those of the whole, and gradients of parts add up.
    launcher.each(part.queries * rows, TransposeStatistics{values<float>(arrays.queries(x.log_sum_exp, 1)),
                                                           static_cast<float*>(memory.log_sum_exp), rows, part.queries});
    launcher.zero(memory.query_sums, part.queries * rows * shape.qk_dim * 4);
    library->run(shape, memory, x.sizes.scale);
    arrays.other_queries(x.sizes.qk_dim).zero(launcher, x.dq.data);
    arrays.other_keys(x.sizes.qk_dim).zero(launcher, x.dk.data);
    arrays.other_keys(x.sizes.v_dim).zero(launcher, x.dv.data);
    return true;
}

template <class Launcher>
void attention(model::Device& device, const model::AttentionArguments& x) {
    auto&& launcher = Launcher::of(device);
    const bool fused = model::attention_is_fused(device.traits(), x.q.dtype, x.sizes, false);
    if (fused && fused_attention(launcher, device.traits(), x, *model::fused_part(device.traits(), x.q.dtype, x.sizes))) return;
    with_unfused_workspace(
        device, x.q.dtype, x.sizes, false, !fused, x.workspace, [&](const model::AttentionWorkspace& space, std::byte* workspace) {
            with_type(x.q.dtype, [&]<class Element>() { unfused_attention<Launcher, Element>(launcher, x, space, workspace); });
        });
}

template <class Launcher>
void attention_backward(model::Device& device, const model::AttentionBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (x.sizes.query_positions.chunk_length == 0) return;
    const bool fused = model::attention_is_fused(device.traits(), x.q.dtype, x.sizes, true);
    if (fused && fused_attention_backward(launcher, device.traits(), x, *model::fused_part(device.traits(), x.q.dtype, x.sizes))) return;
    with_unfused_workspace(
        device, x.q.dtype, x.sizes, true, !fused, x.workspace, [&](const model::AttentionWorkspace& space, std::byte* workspace) {
            with_type(x.q.dtype, [&]<class Element>() { unfused_attention_backward<Launcher, Element>(launcher, x, space, workspace); });
        });
}

/// One row of a head: both outputs weighted by their share of the sum of exponentials.
template <class Element>
struct MergeRow {
    using Sum = Compute<Element>;
    Element* into;
    Sum* into_log_sum_exp;
    const Element* other;
    const Sum* other_log_sum_exp;
    std::int64_t width;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum kept = into_log_sum_exp[row], added = other_log_sum_exp[row];
        team.barrier();
        if (added == -infinity<Sum>()) return;
        const Sum most = larger(kept, added);
        const Sum total = most + logarithm(exponential(kept - most) + exponential(added - most));
        const Sum kept_weight = exponential(kept - total), added_weight = exponential(added - total);
        team.each(width, [&](std::int64_t i) {
            const std::int64_t at = row * width + i;
            into[at] = Element(Sum(into[at]) * kept_weight + Sum(other[at]) * added_weight);
        });
        team.once([&] { into_log_sum_exp[row] = total; });
    }
};

template <class Launcher>
void merge_attention(model::Device& device, const model::MergeAttentionArguments& x) {
    with_type(x.into.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        Launcher::of(device).teams(x.rows, lanes_for(x.width),
                                   MergeRow<Element>{values<Element>(x.into), values<Sum>(x.into_log_sum_exp), values<Element>(x.other),
                                                     values<Sum>(x.other_log_sum_exp), x.width});
    });
}

}  // namespace mgplan::runtime::cuda
