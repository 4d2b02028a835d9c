#include "model/ops/attention.hpp"

#include <algorithm>
#include <array>

#include "model/ops/checks.hpp"
#include "model/ops/fused_attention.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

/// Query places worked on at once: enough for the products to run at speed, few enough to keep scratch a matter of rows.
constexpr std::int64_t kQueryBlock = 64;

AttentionSizes sizes_of(const Tensor& q, const Tensor& k, const Tensor& v, const Positions& query_positions, const Positions& key_positions,
                        double scale, std::int64_t window, double soft_cap) {
    expect_float(q, "q of attention");
    expect_dtype(k, q.dtype(), "k of attention");
    expect_dtype(v, q.dtype(), "v of attention");
    expect_same_device(q, k, v);
    MGPLAN_ASSERT(q.shape().rank() == 3 && k.shape().rank() == 3 && v.shape().rank() == 3, "q, k and v have rows, heads and values");
    MGPLAN_ASSERT(window >= 0, "a window holds places");
    MGPLAN_ASSERT(query_positions.batch == key_positions.batch && query_positions.batch >= 1, "queries and keys have the same sequences");
    MGPLAN_ASSERT(q.shape()[0] == query_positions.rows(), "q has a row for each position");
    MGPLAN_ASSERT(k.shape()[0] == key_positions.rows() && v.shape()[0] == k.shape()[0], "k and v have a row for each position");
    MGPLAN_ASSERT(k.shape()[2] == q.shape()[2] && q.shape()[2] > 0 && v.shape()[2] > 0, "q and k have heads of one size");
    MGPLAN_ASSERT(v.shape()[1] == k.shape()[1], "k and v have as many heads");
    MGPLAN_ASSERT(k.shape()[1] > 0 && q.shape()[1] % k.shape()[1] == 0, "the heads are a multiple of the key and value heads");
    return {query_positions, key_positions, q.shape()[1], k.shape()[1],
            q.shape()[2],    v.shape()[2],  scale,        std::min(kQueryBlock, query_positions.places()),
            window,          soft_cap};
}

AttentionSizes sizes_of_heads(const PackedHeads& heads, const Positions& positions, double scale, std::int64_t window, double soft_cap) {
    return {positions,      positions,      heads.heads, heads.kv_heads,
            heads.head_dim, heads.head_dim, scale,       std::min(kQueryBlock, positions.places()),
            window,         soft_cap,       true};
}

AttentionSizes packed_sizes(const Tensor& packed, const PackedHeads& heads, const Positions& positions, double scale, std::int64_t window,
                            double soft_cap) {
    expect_float(packed, "packed heads of attention");
    expect_packed(packed, heads);
    MGPLAN_ASSERT(packed.shape()[0] == positions.rows(), "packed heads have a row for each position");
    MGPLAN_ASSERT(window >= 0, "a window holds places");
    return sizes_of_heads(heads, positions, scale, window, soft_cap);
}

/// Queries, keys and values, or their gradients: what kernels get, and bytes of all three.
template <class Operand>
struct Heads {
    Operand q, k, v;
    std::int64_t bytes;
};

template <class Operand>
Heads<Operand> apart(const Tensor& q, const Tensor& k, const Tensor& v) {
    return {q, k, v, total_bytes(q, k, v)};
}

template <class Operand>
Heads<Operand> in_packed(const Tensor& packed, const PackedHeads& heads) {
    const std::int64_t queries = heads.group_heads() * heads.head_dim;
    const Operand all(packed);
    return {all, behind(all, queries), behind(all, queries + heads.head_dim), packed.bytes()};
}

/// Σ over the t in [first, first + count) of clamp(t, 0, most).
double clamped_sum(std::int64_t first, std::int64_t count, std::int64_t most) {
    const auto up_to = [most](std::int64_t t) {
        if (t <= 0) return 0.0;
        const auto ramp = static_cast<double>(std::min(t, most));
        return ramp * (ramp + 1) / 2 + static_cast<double>(std::max<std::int64_t>(t - most, 0)) * static_cast<double>(most);
    };
    return up_to(first + count - 1) - up_to(first - 1);
}

/// (query, key) pairs of all sequences and heads of which the query sees the key.
double visible_pairs(const AttentionSizes& sizes) {
    double pairs = 0;
    const Positions &queries = sizes.query_positions, &keys = sizes.key_positions;
    for (std::size_t i = 0; i < static_cast<std::size_t>(queries.chunks); ++i) {
        for (std::size_t j = 0; j < static_cast<std::size_t>(keys.chunks); ++j) {
            const std::int64_t ahead = queries.first[i] - keys.first[j] + 1;
            pairs += clamped_sum(ahead, queries.chunk_length, keys.chunk_length);
            if (sizes.window > 0) pairs -= clamped_sum(ahead - sizes.window, queries.chunk_length, keys.chunk_length);
        }
    }
    return pairs * static_cast<double>(sizes.query_positions.batch * sizes.heads);
}

/// Returns true if one rank holds the sequences, and no window hides a part of them.
bool is_whole(const AttentionSizes& sizes) {
    const Positions &queries = sizes.query_positions, &keys = sizes.key_positions;
    return queries.chunks == 1 && keys.chunks == 1 && sizes.window == 0 && queries.first[0] == 0 && keys.first[0] == 0 &&
           queries.places() == keys.places();
}

AttentionPart part_sizes(const Device& device, Dtype dtype, const AttentionSizes& sizes, bool backward) {
    const std::int64_t batch = sizes.query_positions.batch;
    return {sizes.query_positions.places(),
            sizes.key_positions.places(),
            batch,
            sizes.heads,
            sizes.kv_heads,
            sizes.qk_dim,
            sizes.v_dim,
            sizes.window,
            device.traits().kind != DeviceKind::cuda || attention_is_fused(device.traits(), dtype, sizes, backward),
            is_whole(sizes),
            dtype};
}

/// OpRecord::launches, by runtime/cuda/ops/attention.hpp.
std::int64_t launches_of(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes, bool backward) {
    if (traits.kind != DeviceKind::cuda) return 1;
    const std::int64_t queries = sizes.query_positions.places(), keys = sizes.key_positions.places();
    if (const auto part = fused_part(traits, dtype, sizes); part && attention_is_fused(traits, dtype, sizes, backward)) {
        const auto zeros = [](std::int64_t places, std::int64_t first, std::int64_t count) {
            return (first > 0 ? 1 : 0) + (first + count < places ? 1 : 0);
        };
        const std::int64_t of_queries = zeros(queries, part->first_query, part->queries);
        // Besides the library's kernels: its statistics are transposed, and those of rows that see no keys are hidden.
        if (!backward) return 2 + of_queries + (of_queries > 0 ? 1 : 0);
        return 3 + 2 + of_queries + 2 * zeros(keys, part->first_key, part->keys);
    }
    const AttentionWorkspace space = attention_workspace(traits, dtype, sizes, backward, false);
    const std::int64_t blocks = (queries + space.block - 1) / space.block, group = sizes.heads / sizes.kv_heads;
    if (!backward) return blocks * (2 * group + 1);
    return blocks * (5 * group + 1) + (space.weights >= 0 ? 2 : 0);
}

/// Returns the GPU kernels' workspace; undefined on the CPU.
Tensor gpu_workspace(Device& device, Dtype dtype, const AttentionSizes& sizes, bool backward) {
    const KernelTraits& traits = device.traits();
    if (traits.kind != DeviceKind::cuda) return {};
    const auto space = attention_workspace(traits, dtype, sizes, backward, attention_is_fused(traits, dtype, sizes, backward));
    return take_scratch(device, space.total, "attention workspace");
}

struct AttentionScratch {
    Device& device;
    Dtype dtype;
    [[nodiscard]] Tensor take(std::int64_t rows, std::int64_t columns, std::string_view name) const {
        return device.empty({rows, columns}, dtype, MemoryCategory::workspace, name);
    }
};

AttentionResult attend(Device& device, const Heads<Input>& x, const AttentionSizes& sizes) {
    const Dtype dtype = x.q.dtype;
    const std::int64_t rows = sizes.query_positions.rows(), places = sizes.key_positions.places();
    AttentionResult result{
        device.empty({rows, sizes.heads, sizes.v_dim}, dtype, MemoryCategory::activations, "attention output"),
        device.empty({rows, sizes.heads}, statistics_dtype(dtype), MemoryCategory::activations, "attention log-sum-exp")};
    // Two products, 2 FLOPs for each pair and value.
    device.report({"attention",
                   visible_pairs(sizes) * 2.0 * static_cast<double>(sizes.qk_dim + sizes.v_dim),
                   x.bytes,
                   total_bytes(result.output, result.log_sum_exp),
                   launches_of(device.traits(), dtype, sizes, false),
                   {},
                   {},
                   part_sizes(device, dtype, sizes, false)});
    if (const Tensor workspace = gpu_workspace(device, dtype, sizes, false); workspace.defined()) {
        if (device.computes() && rows > 0) {
            device.kernels().attention(device, {x.q, x.k, x.v, result.output, result.log_sum_exp, sizes, {}, {}, {}, {}, {}, workspace});
        }
        return result;
    }
    const AttentionScratch scratch{device, statistics_dtype(dtype)};
    const Tensor keys = scratch.take(places, sizes.qk_dim, "attention keys of a head");
    const Tensor values = scratch.take(places, sizes.v_dim, "attention values of a head");
    const Tensor queries = scratch.take(sizes.block, sizes.qk_dim, "attention query block");
    const Tensor outputs = scratch.take(sizes.block, sizes.v_dim, "attention output block");
    const Tensor scores = scratch.take(sizes.block, places, "attention score block");
    if (device.computes() && rows > 0) {
        device.kernels().attention(device,
                                   {x.q, x.k, x.v, result.output, result.log_sum_exp, sizes, keys, values, queries, outputs, scores});
    }
    return result;
}

void expect_result(const Tensor& d_output, const AttentionResult& result, Dtype dtype, const AttentionSizes& sizes) {
    const std::int64_t rows = sizes.query_positions.rows();
    expect_shape(d_output, {rows, sizes.heads, sizes.v_dim}, "output gradient of attention");
    expect_dtype(d_output, dtype, "output gradient of attention");
    expect_shape(result.output, d_output.shape(), "output of attention");
    expect_dtype(result.output, dtype, "output of attention");
    expect_shape(result.log_sum_exp, {rows, sizes.heads}, "log-sum-exp of attention");
    expect_dtype(result.log_sum_exp, statistics_dtype(dtype), "log-sum-exp of attention");
}

/// The gradients are written to `into`.
void attend_backward(const Tensor& d_output, const Heads<Input>& x, const AttentionResult& result, const Heads<Output>& into,
                     const AttentionSizes& sizes) {
    Device& device = d_output.device();
    const Dtype dtype = x.q.dtype;
    const std::int64_t places = sizes.key_positions.places();
    // Scores again, dP, dV, dQ, dK: five products.
    device.report({"attention_backward",
                   visible_pairs(sizes) * 2.0 * static_cast<double>(3 * sizes.qk_dim + 2 * sizes.v_dim),
                   x.bytes + total_bytes(d_output, result.output, result.log_sum_exp),
                   into.bytes,
                   launches_of(device.traits(), dtype, sizes, true),
                   {},
                   {},
                   part_sizes(device, dtype, sizes, true)});
    AttentionBackwardArguments arguments{
        d_output, x.q, x.k, x.v, result.output, result.log_sum_exp, into.q, into.k, into.v, sizes, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    if (const Tensor workspace = gpu_workspace(device, dtype, sizes, true); workspace.defined()) {
        arguments.workspace = workspace;
        if (device.computes()) device.kernels().attention_backward(device, arguments);
        return;
    }
    const AttentionScratch scratch{device, statistics_dtype(dtype)};
    const Tensor keys = scratch.take(places, sizes.qk_dim, "attention keys of a head");
    const Tensor values = scratch.take(places, sizes.v_dim, "attention values of a head");
    const Tensor queries = scratch.take(sizes.block, sizes.qk_dim, "attention query block");
    const Tensor outputs = scratch.take(sizes.block, sizes.v_dim, "attention output gradient block");
    const Tensor scores = scratch.take(sizes.block, places, "attention score block");
    const Tensor d_keys = scratch.take(places, sizes.qk_dim, "attention key gradients of a head");
    const Tensor d_values = scratch.take(places, sizes.v_dim, "attention value gradients of a head");
    const Tensor d_queries = scratch.take(sizes.block, sizes.qk_dim, "attention query gradient block");
    const Tensor d_scores = scratch.take(sizes.block, places, "attention score gradient block");
    if (device.computes()) {
        device.kernels().attention_backward(device, {d_output, x.q, x.k, x.v, result.output, result.log_sum_exp, into.q, into.k, into.v,
                                                     sizes, keys, values, queries, outputs, scores, d_keys, d_values, d_queries, d_scores});
    }
}

}  // namespace

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const Positions& query_positions,
                          const Positions& key_positions, double scale, std::int64_t window, double soft_cap) {
    const AttentionSizes sizes = sizes_of(q, k, v, query_positions, key_positions, scale, window, soft_cap);
    return attend(q.device(), apart<Input>(q, k, v), sizes);
}

AttentionGradients attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionResult& result, const Positions& query_positions, const Positions& key_positions,
                                      double scale, std::int64_t window, double soft_cap) {
    const AttentionSizes sizes = sizes_of(q, k, v, query_positions, key_positions, scale, window, soft_cap);
    expect_result(d_output, result, q.dtype(), sizes);
    expect_same_device(q, d_output, result.output, result.log_sum_exp);
    Device& device = q.device();
    AttentionGradients gradients{device.empty(q.shape(), q.dtype(), MemoryCategory::activations, "attention query gradient"),
                                 device.empty(k.shape(), k.dtype(), MemoryCategory::activations, "attention key gradient"),
                                 device.empty(v.shape(), v.dtype(), MemoryCategory::activations, "attention value gradient")};
    attend_backward(d_output, apart<Input>(q, k, v), result, apart<Output>(gradients.q, gradients.k, gradients.v), sizes);
    return gradients;
}

AttentionResult packed_attention(const Tensor& packed, const PackedHeads& heads, const Positions& positions, double scale,
                                 std::int64_t window, double soft_cap) {
    const AttentionSizes sizes = packed_sizes(packed, heads, positions, scale, window, soft_cap);
    return attend(packed.device(), in_packed<Input>(packed, heads), sizes);
}

Tensor packed_attention_backward(const Tensor& d_output, const Tensor& packed, const PackedHeads& heads, const AttentionResult& result,
                                 const Positions& positions, double scale, std::int64_t window, double soft_cap) {
    const AttentionSizes sizes = packed_sizes(packed, heads, positions, scale, window, soft_cap);
    expect_result(d_output, result, packed.dtype(), sizes);
    expect_same_device(packed, d_output, result.output, result.log_sum_exp);
    Tensor gradient = packed.device().empty(packed.shape(), packed.dtype(), MemoryCategory::activations, "packed attention gradient");
    attend_backward(d_output, in_packed<Input>(packed, heads), result, in_packed<Output>(gradient, heads), sizes);
    return gradient;
}

bool reads_packed(const Device& device, Dtype dtype, const PackedHeads& heads, const Positions& positions, std::int64_t window,
                  double soft_cap) {
    const AttentionSizes packed = sizes_of_heads(heads, positions, 1, window, soft_cap);
    AttentionSizes apart = packed;
    apart.packed = false;
    // The unpacked shape is checked last: a check compiles a plan, which might never run.
    return std::ranges::all_of(std::array{false, true}, [&](bool backward) {
        return attention_is_fused(device.traits(), dtype, packed, backward) || !attention_is_fused(device.traits(), dtype, apart, backward);
    });
}

void merge_attention(AttentionResult& into, const AttentionResult& other) {
    expect_float(into.output, "output of merge_attention");
    expect_dtype(other.output, into.output.dtype(), "other output of merge_attention");
    MGPLAN_ASSERT(into.output.shape().rank() == 3, "the output of attention has rows, heads and values");
    expect_shape(other.output, into.output.shape(), "other output of merge_attention");
    const Shape kept{into.output.shape()[0], into.output.shape()[1]};
    const Dtype kept_dtype = statistics_dtype(into.output.dtype());
    expect_shape(into.log_sum_exp, kept, "log-sum-exp of merge_attention");
    expect_dtype(into.log_sum_exp, kept_dtype, "log-sum-exp of merge_attention");
    expect_shape(other.log_sum_exp, kept, "other log-sum-exp of merge_attention");
    expect_dtype(other.log_sum_exp, kept_dtype, "other log-sum-exp of merge_attention");
    expect_same_device(into.output, into.log_sum_exp, other.output, other.log_sum_exp);
    Device& device = into.output.device();
    device.report({"merge_attention", 3.0 * static_cast<double>(into.output.elements()),
                   total_bytes(into.output, into.log_sum_exp, other.output, other.log_sum_exp),
                   total_bytes(into.output, into.log_sum_exp)});
    if (device.computes() && into.output.elements() > 0) {
        device.kernels().merge_attention(
            device, {into.output, into.log_sum_exp, other.output, other.log_sum_exp, kept.elements(), into.output.shape()[2]});
    }
}

}  // namespace mgplan::model
