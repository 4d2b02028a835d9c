#include "simulator/price/op_price.hpp"

#include <algorithm>
#include <string_view>

namespace mgplan::simulator {
namespace {

/// Number of keys per tile of queries (FlashAttention, hopper/tile_size.h: 64 to 192 by head width).
constexpr std::int64_t kKeyTile = 128;
/// Overhead of a tile of queries with a window, in tiles of keys: half a tile at either end, and four for loading it, filling its pipeline
/// and writing its rows. cuDNN's benchmark on GB200 (cudnn-frontend, benchmark/sdpa_benchmark_training/results, heads of 64, 4,096 keys):
/// 0.21 ms for windows of 128 over 256 sequences' heads and of 1,024 over 128.
constexpr double kBesideWindow = 5;

bool is_attention_backward(const model::OpRecord& record) {
    return record.name == "attention_backward";
}

/// Forward FLOPs over the keys that fused attention visits. Causal attention computes half of its pairs; the extra work of the tiles on the
/// diagonal is part of the fitted efficiency. With a window of w out of s keys a tile's overhead is added with the factor 1 - w/s: the
/// efficiency for whole sequences already includes it.
double walked_flops(const model::AttentionPart& part, double visible) {
    const double all = part.causal_half_flops();
    if (part.window == 0 || part.window >= part.keys) return all;
    if (visible <= 0) return 0;
    const double share = 1 - static_cast<double>(part.window) / static_cast<double>(part.keys);
    const double per_key = 2.0 * static_cast<double>(part.batch * part.heads * (part.qk_dim + part.v_dim) * part.queries);
    return std::min(all, visible + per_key * kBesideWindow * static_cast<double>(kKeyTile) * share);
}

/// Clocks of a multiprocessor for an op's arithmetic: it issues 16 exponentials and 128 other instructions a clock (CUDA C++ Programming
/// Guide, table of the throughput of arithmetic instructions, compute capabilities 8.0 to 10.0). Lower bound of the kernel's time.
double arithmetic_clocks(double exponentials, double instructions) {
    return exponentials / 16 + instructions / 128;
}

/// FLOPs of the forward that the kernels of a step of fused attention walk, and their share of those without packed sequences.
struct Walk {
    double flops = 0, share = 1;
};

Walk walk(const model::OpRecord& record, const OpRates& rates) {
    const model::AttentionPart& part = record.part;
    // The forward runs two of the backward's five GEMMs: record.flops counts 3 qk + 2 v for the backward, qk + v for the forward.
    const double width = static_cast<double>(part.qk_dim + part.v_dim);
    const double visible =
        is_attention_backward(record) ? record.flops * width / static_cast<double>(3 * part.qk_dim + 2 * part.v_dim) : record.flops;
    const double whole = walked_flops(part, visible), walked = std::min(whole, part.causal_half_flops() * rates.attention_share);
    return {walked, whole > 0 ? walked / whole : 1};
}

/// Seconds that dropout's masks add to fused attention, in the storage type and in fp8.
double mask_seconds(const model::OpRecord& record, const OpRates& rates) {
    if (record.part.queries == 0 || record.arithmetic.instructions <= 0) return 0;
    const double clocks = arithmetic_clocks(0, record.arithmetic.instructions) * walk(record, rates).share;
    return rates.products->multiprocessor_clocks(clocks) - rates.products->multiprocessor_clocks(0);
}

double fused_attention(const model::OpRecord& record, const OpRates& rates) {
    const KernelTimes& times = *rates.products;
    const model::AttentionPart& part = record.part;
    const bool backward = is_attention_backward(record);
    const double walked = walk(record, rates).flops;
    if (walked <= 0) return 0;
    const bool windowed = part.window > 0 && part.window < part.keys;
    std::int64_t longest = windowed ? std::min(part.keys, part.window + kKeyTile) : part.keys;
    if (rates.attention_length > 0) longest = std::min(longest, rates.attention_length);
    const double seconds = mask_seconds(record, rates) + (backward ? times.attention_backward(2.5 * walked, longest, part.qk_dim)
                                                                   : times.attention_forward(walked, longest, part.qk_dim));
    if (!windowed) return seconds;
    // With few keys per query, memory traffic may take longer. The backward also accumulates the gradient of the queries in fp32.
    const std::int64_t moved = record.bytes_read + record.bytes_written;
    const std::int64_t added = backward ? 8 * part.batch * part.queries * part.heads * part.qk_dim : 0;
    return std::max(seconds, times.memory_bound(static_cast<double>(moved + added)));
}

double separate_attention(const model::OpRecord& record, const OpRates& rates) {
    const model::AttentionPart& part = record.part;
    const std::int64_t count = part.batch * part.heads;
    const double scores =
        static_cast<double>(count) * static_cast<double>(part.queries) * static_cast<double>(part.keys) * rates.storage->element_bytes();
    if (!is_attention_backward(record)) {
        return rates.storage->gemm(part.queries, part.keys, part.qk_dim, count) +
               rates.storage->gemm(part.queries, part.v_dim, part.keys, count) + rates.products->memory_bound(2 * scores, Traffic::softmax);
    }
    return 2 * (rates.storage->gemm(part.queries, part.keys, part.v_dim, count) +
                rates.storage->gemm(part.keys, part.qk_dim, part.queries, count)) +
           rates.products->memory_bound(3 * scores, Traffic::softmax);
}

double grouped_product(const model::GroupedProductSizes& sizes, bool one_by_one, const KernelTimes& times) {
    const std::int64_t groups = sizes.groups;
    if (groups == 1 || one_by_one) {
        const double each = sizes.accumulate ? times.weight_gradient(sizes.m, sizes.n, sizes.k) : times.gemm(sizes.m, sizes.n, sizes.k);
        return static_cast<double>(groups) * each;
    }
    return sizes.accumulate ? times.grouped_weight_gradient(sizes.m, sizes.n, sizes.k, groups)
                            : times.grouped_gemm(sizes.m, sizes.n, sizes.k, groups);
}

Traffic traffic_of(std::string_view op) {
    if (op == "permute_rows" || op == "unpermute_rows" || op == "scatter_rows" || op == "reorder_blocks") return Traffic::permutation;
    if (op == "row_maximum" || op == "softmax_sums" || op == "fused_cross_entropy" || op == "fp32_cross_entropy")
        return Traffic::cross_entropy;
    if (op == "softmax_passes") return Traffic::softmax;
    return Traffic::streaming;
}

/// True for recurrences by chunks, which Megatron-LM takes from mamba_ssm and flash-linear-attention.
bool runs_by_chunks(std::string_view op) {
    return op.starts_with("state_space_scan") || op.starts_with("delta_rule");
}

/// Clocks until a dependent instruction can start (Jia et al., arXiv 1804.06826, table 4.1: most of Volta's arithmetic; later GPUs are
/// similar). Loads take longer.
constexpr double kDependentClocks = 4;

/// Consecutive kernels: GEMMs of a library, and others that take the longer of memory traffic and arithmetic. No thread finishes before it
/// has issued its instructions one by one.
double own_kernels(const model::OpRecord& record, const OpRates& rates) {
    const model::OwnKernels& own = record.own;
    const KernelTimes& times = *rates.storage;
    const double spread = arithmetic_clocks(own.exponentials, own.instructions);
    const double walked = own.of_a_thread * kDependentClocks * rates.calibration->multiprocessors;  // while all wait for one thread
    const double products = own.product_flops > 0 ? times.products(own.product_flops) : 0;
    const double others = std::max(rates.products->memory_bound(own.bytes), times.multiprocessor_clocks(std::max(spread, walked)));
    const std::int64_t further = record.launches - (products > 0 ? 2 : 1);
    return products + others + rates.calibration->kernel_seconds * static_cast<double>(std::max<std::int64_t>(0, further));
}

/// Start-up and end of the further kernels of the step. Those of grouped GEMMs run on four streams at once (Transformer Engine,
/// common/util/multi_stream.cpp, nvte_get_num_compute_streams).
double further_starts(const PieceStep& step, const OpRates& rates) {
    constexpr double kStreams = 4;
    return rates.calibration->kernel_seconds * static_cast<double>(step.launches) / (step.op.grouped.groups > 0 ? kStreams : 1);
}

}  // namespace

bool is_copy_to_or_from_host(const model::OpRecord& record) {
    return record.name == "copy_to_host" || record.name == "copy_from_host";
}

bool quantises(const model::OpRecord& record) {
    for (const std::string_view name : {"quantise", "quantise_again", "transpose_fp8", "find_largest", "find_largest_produced",
                                        "quantise_attention", "dequantise", "cast_to_fp8", "largest_magnitude", "transpose_codes"}) {
        if (record.name == name) return true;
    }
    return false;
}

double op_seconds(const model::OpRecord& record, const OpRates& rates) {
    if (is_copy_to_or_from_host(record)) return static_cast<double>(record.bytes_read) / rates.host_bandwidth;
    if (const model::ProductSizes& product = record.product; product.m > 0) {
        const KernelTimes& times = product.dtype == Dtype::fp8 ? *rates.products : *rates.storage;
        return product.accumulate ? times.weight_gradient(product.m, product.n, product.k) : times.gemm(product.m, product.n, product.k);
    }
    if (record.grouped.groups > 0)
        return grouped_product(record.grouped, record.name == "matmul_by_group",
                               record.grouped.dtype == Dtype::fp8 ? *rates.products : *rates.storage);
    if (record.part.queries > 0) return record.part.fused ? fused_attention(record, rates) : separate_attention(record, rates);
    if (record.own.bytes > 0) return own_kernels(record, rates);
    const double moved =
        rates.products->memory_bound(static_cast<double>(record.bytes_read + record.bytes_written), traffic_of(record.name));
    if (record.name == "scatter_rows" && rates.calibration->atomic_adds > 0)
        return std::max(moved, record.flops / rates.calibration->atomic_adds);
    const model::Arithmetic& arithmetic = record.arithmetic;
    if (arithmetic.small_products) {
        const bool backward = record.name.ends_with("_backward");
        return std::max(moved,
                        runs_by_chunks(record.name) ? rates.storage->scan(record.flops, backward) : rates.storage->products(record.flops));
    }
    const double clocks = arithmetic_clocks(arithmetic.exponentials, arithmetic.instructions);
    return clocks > 0 ? std::max(moved, rates.storage->multiprocessor_clocks(clocks)) : moved;
}

double step_seconds(const PieceStep& step, const OpRates& rates) {
    if (step.op.name == "find_largest_produced" && rates.calibration->producers_find_amax) return 0;
    if (step.op.name == "quantise_again" && rates.calibration->nvfp4_casts < 2) return 0;
    const double seconds = op_seconds(step.op, rates) + further_starts(step, rates);
    if (!step.in_fp8) return seconds;
    const double masks = mask_seconds(step.op, rates);
    return masks + (seconds - masks) / (is_attention_backward(step.op) ? rates.calibration->attention_fp8_backward
                                                                       : rates.calibration->attention_fp8_forward);
}

int step_kernels(const PieceStep& step, Engine engine) {
    constexpr std::int64_t kMost = 10'000;
    if (step.kind == StepKind::wait) return 0;
    if (engine == Engine::mgplan) {
        if (step.kind == StepKind::start) return step.collective == model::CollectiveKind::receive ? 0 : 1;
        return static_cast<int>(std::min(kMost, step.op.launches));
    }
    // Exchanges of experts are modules of their own; collectives of tp and cp belong to the modules of GEMMs and attention.
    if (step.kind == StepKind::start) return step.group == LayerGroup::ep || step.group == LayerGroup::etp ? 1 : 0;
    return op_kernels(step.op) + static_cast<int>(std::min(kMost, (step.launches + kLaunchesOfAKernel - 1) / kLaunchesOfAKernel));
}

int op_kernels(const model::OpRecord& record) {
    if (record.part.queries > 0) {
        // FlashAttention's backward first multiplies the outputs with their gradients and converts dQ last (flash_bwd_launch_template.h).
        if (record.part.fused) return is_attention_backward(record) ? 3 : 1;
        return is_attention_backward(record) ? 7 : 4;
    }
    if (record.name == "matmul_by_group") return static_cast<int>(std::min<std::int64_t>(record.grouped.groups, 256));
    // A weight gradient is followed by the hook that marks it as ready.
    if (record.product.accumulate || record.grouped.accumulate) return 2;
    // Gradients of inputs, and of weights summed over rows in a second kernel; dropout before the addition.
    if (record.name.ends_with("norm_backward") || record.name == "dropout_add") return 2;
    // Autograd's own sums of gradients have no module overhead, nor do casts to fp8 inside a linear layer.
    if (record.name == "add" || quantises(record)) return 0;
    // Cast, maximum, subtraction, mask of other ranks' targets, exponentials, sum, division; backward: target's share, scale, cast
    // (Megatron-core, tensor_parallel/cross_entropy.py).
    if (record.name == "fp32_cross_entropy") return 7;
    if (record.name == "scaled_exponentials") return 3;
    // Scores, top-k, softmax of the chosen, scatters to two tables, casts, counts (Megatron-core, moe_utils.py).
    if (record.name == "router_scores") return 10;
    return 1;
}

}  // namespace mgplan::simulator
