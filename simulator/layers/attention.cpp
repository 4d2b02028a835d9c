#include "simulator/layers/attention.hpp"

#include <algorithm>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/layers/mlp.hpp"
#include "simulator/layers/quantisation.hpp"

namespace mgplan::simulator {
namespace {

/// A projection: seconds of the forward, input-gradient and weight-gradient products.
struct Projection {
    double forward = 0, input_gradient = 0, weight_gradient = 0;
    double flops = 0;

    Projection(const Shard& s, std::int64_t in, std::int64_t out)
        : forward(s.kernels->gemm(s.tokens, out, in)),
          input_gradient(s.kernels->gemm(s.tokens, in, out)),
          weight_gradient(s.kernels->weight_gradient(out, in, s.tokens)),
          flops(2.0 * static_cast<double>(s.tokens) * static_cast<double>(in) * static_cast<double>(out)) {}

    [[nodiscard]] double backward() const { return input_gradient + weight_gradient; }
};

struct CoreSizes {
    std::int64_t heads, kv_heads;  ///< on this rank
    std::int64_t qk_dim, v_dim;
    [[nodiscard]] std::int64_t q() const { return heads * qk_dim; }
    [[nodiscard]] std::int64_t k() const { return kv_heads * qk_dim; }
    [[nodiscard]] std::int64_t v() const { return kv_heads * v_dim; }
    [[nodiscard]] std::int64_t o() const { return heads * v_dim; }
};

/// Exposed seconds of the context-parallel exchange around a core attention of `core_forward`/`core_backward` seconds.
void add_context_parallel(PieceCost& cost, const Shard& s, const CoreSizes& sizes, double core_forward, double core_backward) {
    if (s.cp == 1) return;
    const double kv = static_cast<double>(s.tokens * (sizes.k() + sizes.v()) * s.element);
    const double steps = static_cast<double>(s.cp - 1);
    switch (s.cp_comm_type) {
        case CpCommType::p2p: {
            // Ring: while one chunk is attended to, the next travels; the backward also carries the chunk's gradient.
            const double step = send_receive_seconds(kv, s.paths->cp, *s.calibration);
            // Every step's partial output is merged into an fp32 accumulator: read both, write one.
            const double merge = steps * s.kernels->memory_bound(static_cast<double>(s.tokens * sizes.o()) * 10);
            cost.exposed_forward.cp += steps * beside(s, step, core_forward / static_cast<double>(s.cp)) + merge;
            cost.exposed_backward.cp += steps * beside(s, 2 * step, core_backward / static_cast<double>(s.cp)) + merge;
            break;
        }
        case CpCommType::all_gather: {
            const double gather = all_gather_seconds(kv * static_cast<double>(s.cp), s.paths->cp, *s.calibration);
            cost.exposed_forward.cp += gather;
            cost.exposed_backward.cp += 2 * gather;  // gathered again, and the gradients reduce-scattered
            break;
        }
        case CpCommType::a2a:
        case CpCommType::a2a_p2p: {
            // Heads against sequence: q, k, v on the way in, the output on the way back (DeepSpeed-Ulysses, arXiv 2309.14509).
            const double in = static_cast<double>(s.tokens * (sizes.q() + sizes.k() + sizes.v()) * s.element);
            const double out = static_cast<double>(s.tokens * sizes.o() * s.element);
            const double exchange =
                all_to_all_seconds(in, s.paths->cp, *s.calibration) + all_to_all_seconds(out, s.paths->cp, *s.calibration);
            cost.exposed_forward.cp += exchange;
            cost.exposed_backward.cp += exchange;
            break;
        }
    }
}

/// How often softmax reads or writes every score, in scores of the storage type, and its kernels.
struct ScorePasses {
    double forward = 2, backward = 3;
    int kernels_forward = 1, kernels_backward = 1;
};

/// Megatron-LM's fused softmax takes scores of 17 to 16,384 keys, rows and keys in multiples of four, and as many
/// (sequence, head) pairs as fill its blocks of four warps (megatron/core/fusions/fused_softmax.py, is_kernel_available;
/// csrc/megatron/scaled_upper_triang_masked_softmax.h: a warp a row of more than 128 keys, two rows of fewer). Otherwise
/// PyTorch scales, makes a causal mask, fills, converts to fp32 and back.
ScorePasses score_passes(const Shard& s, std::int64_t rows, std::int64_t keys, std::int64_t pairs) {
    const std::int64_t in_block = keys > 128 ? 4 : 8;
    const bool fits = keys > 16 && keys <= 16384 && rows % 4 == 0 && keys % 4 == 0 && pairs % in_block == 0;
    const bool wanted = s.megatron() == nullptr || s.megatron()->masked_softmax_fusion;
    if (s.megatron() == nullptr || (fits && wanted)) return {};
    // Scale 2, fill 2, to fp32 1 + 2, softmax 4, back 2 + 1; backward: 1 + 2, 6, 2 + 1, fill 2, scale 2.
    return {14, 16, 8, 5};
}

/// Keys that fused attention walks for a query, on average over a sequence, and for the last tile of queries.
struct WalkedKeys {
    double mean;
    std::int64_t longest;
};

/// A window of w places shows w - w^2/2s of a sequence's s to a query on average, the causal half where it is the sequence. A tile
/// of 128 queries walks whole tiles of 128 keys (FlashAttention, hopper/tile_size.h: 64 to 192 by head width): half a tile at either end
/// of the window is computed for nothing. The causal end's share of that is in the fitted efficiency, for which the tiles count the less,
/// the more the window is like the sequence.
WalkedKeys walked_keys(std::int64_t sequence, std::int64_t window) {
    if (window == 0) return {static_cast<double>(sequence) / 2, sequence};
    constexpr std::int64_t kTile = 128;
    const double w = static_cast<double>(window), s = static_cast<double>(sequence);
    const double mean = w - w * w / (2 * s) + static_cast<double>(kTile) * (1 - w / s);
    return {std::min(mean, s / 2), std::min(sequence, window + kTile)};
}

/// Parts of the core that run one after the other: the ring and the gathered keys attend to one rank's part of the sequence at a time
/// (model/layers/context_parallel.cpp); all-to-all leaves each rank whole sequences.
std::int64_t core_parts(const Shard& s) {
    return s.cp_comm_type == CpCommType::p2p || s.cp_comm_type == CpCommType::all_gather ? s.cp : 1;
}

/// Core attention.
void add_core(PieceCost& cost, const Shard& s, const CoreSizes& sizes, std::int64_t window) {
    const ModelSpec& model = s.model();
    const std::int64_t sequence = s.workload->batch.sequence;
    if (window >= sequence) window = 0;  // it hides nothing
    // FlashAttention and cuDNN know windows (Transformer Engine, dot_product_attention/utils.py, get_attention_backend); mgplan's own
    // CUDA device computes them by separate products. Both fuse each part of a sequence that is spread over ranks (model/ops/
    // fused_attention.hpp; Transformer Engine, context_parallel.py).
    const bool fused = s.workload->training.attention == AttentionBackend::flash && (window == 0 || s.engine == Engine::megatron);
    const int repeated = s.engine == Engine::megatron ? 1 : static_cast<int>(core_parts(s));
    // QK^T and PV, half of the pairs under the causal mask: 2·tokens·(seq/2)·width each.
    const double flops = static_cast<double>(s.tokens) * static_cast<double>(sequence) * static_cast<double>(sizes.q() + sizes.o());
    double forward = 0, backward = 0;
    const bool recomputed = s.recomputes(RecomputeModule::core_attn);
    if (fused) {
        const WalkedKeys keys = walked_keys(sequence, window);
        const double walked = flops * keys.mean / (static_cast<double>(sequence) / 2);
        forward = s.kernels->attention_forward(walked, keys.longest, sizes.qk_dim);
        backward = s.kernels->attention_backward(2.5 * walked, keys.longest, sizes.qk_dim);
        if (window > 0) {
            // Few keys a query: moving the operands may take longer. Backward: all four and the output's gradient in, three out, and the
            // queries' gradient added up in fp32.
            const double tokens = static_cast<double>(s.tokens), element = static_cast<double>(s.element);
            const double in = static_cast<double>(sizes.q() + sizes.k() + sizes.v()), out = static_cast<double>(sizes.o());
            forward = std::max(forward, s.kernels->memory_bound(tokens * element * (in + out)));
            backward =
                std::max(backward, s.kernels->memory_bound(tokens * (element * (2 * in + 2 * out) + 8 * static_cast<double>(sizes.q()))));
        }
        if (s.megatron() != nullptr && s.megatron()->fp8_attention && quantised_products(s)) {
            forward /= s.calibration->attention_fp8_forward;
            backward /= s.calibration->attention_fp8_backward;
            // Queries, keys and values in; the output's gradient on the way back.
            const double row = 3 * static_cast<double>(s.tokens);  // two bytes read, one written
            forward += s.kernels->memory_bound(row * static_cast<double>(sizes.q() + sizes.k() + sizes.v()));
            backward += s.kernels->memory_bound(row * static_cast<double>(sizes.o()));
        }
        cost.kernels_forward += repeated;
        cost.kernels_backward += repeated * 3;
    } else {
        // The score matrix is full, whatever the mask: both halves are computed, and it is read and written by softmax, dropout and
        // products.
        const double scores = static_cast<double>(s.tokens) * static_cast<double>(sequence) * static_cast<double>(sizes.heads);
        const std::int64_t batch_heads = s.micro_batch * sizes.heads;
        const bool dropout = model.attention_dropout > 0;
        const ScorePasses passes = score_passes(s, sequence / s.cp, sequence, batch_heads);
        const double element = static_cast<double>(s.element);
        forward = s.storage_kernels->gemm(sequence / s.cp, sequence, sizes.qk_dim, batch_heads) +
                  s.storage_kernels->gemm(sequence / s.cp, sizes.v_dim, sequence, batch_heads) +
                  s.kernels->memory_bound(scores * element * (passes.forward + (dropout ? 2.5 : 0)), Traffic::softmax);
        backward = 2 * (s.storage_kernels->gemm(sequence / s.cp, sequence, sizes.v_dim, batch_heads) +
                        s.storage_kernels->gemm(sequence, sizes.qk_dim, sequence / s.cp, batch_heads)) +
                   s.kernels->memory_bound(scores * element * (passes.backward + (dropout ? 2.5 : 0)), Traffic::softmax);
        cost.kernels_forward += repeated * (3 + passes.kernels_forward);
        cost.kernels_backward += repeated * (6 + passes.kernels_backward);
    }
    cost.forward += forward;
    cost.backward += backward;
    cost.forward_flops += flops;
    const double exchanged = cost.exposed_forward.cp;
    add_context_parallel(cost, s, sizes, forward, backward);
    if (recomputed) {
        cost.recompute += forward;
        cost.recompute_flops += flops;
        cost.exposed_recompute.cp += cost.exposed_forward.cp - exchanged;
    }
}

/// Multi-head and grouped-query attention: one fused projection to q, k and v.
CoreSizes add_qkv(PieceCost& cost, const Shard& s) {
    const ModelSpec& model = s.model();
    const CoreSizes sizes{model.heads / s.tp, std::max<std::int64_t>(1, model.kv_heads / s.tp), model.head_dim, model.head_dim};
    // With tp beyond the kv heads the projection is divided evenly all the same, and its parts are gathered (docs/decisions/0004).
    const std::int64_t projected = (model.heads + 2 * model.kv_heads) * model.head_dim;
    const Projection qkv(s, model.hidden, projected / s.tp);
    cost.forward += qkv.forward;
    cost.backward += qkv.backward();
    cost.weight_gradient += qkv.weight_gradient;
    cost.forward_flops += qkv.flops;
    cost += quantise_column_parallel(s, LinearInput::normed, model.hidden, projected / s.tp);
    cost.kernels_forward += 2;
    cost.kernels_backward += 4;
    const std::int64_t packed = s.tokens * (sizes.q() + sizes.k() + sizes.v());
    const std::int64_t rotated = s.tokens * (sizes.q() + sizes.k());
    if (model.position == PositionEmbedding::rope) {
        cost.forward += s.kernels->memory_bound(static_cast<double>(2 * rotated * s.element));
        cost.backward += s.kernels->memory_bound(static_cast<double>(2 * packed * s.element));
        cost.kernels_forward += 2;
        cost.kernels_backward += 3;
    }
    if (model.qk_norm) {
        cost.forward += s.kernels->memory_bound(static_cast<double>(2 * rotated * s.element));
        cost.backward += s.kernels->memory_bound(static_cast<double>(3 * rotated * s.element));
        cost.kernels_forward += 2;
        cost.kernels_backward += 4;
    }
    // The input gradient's reduction runs beside the weight gradient, the second gather beside the input gradient
    // (Megatron-core tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
    if (s.tp > model.kv_heads) {
        const double exchange = all_gather_seconds(static_cast<double>(s.tokens * projected * s.element), s.paths->tp, *s.calibration);
        cost.exposed_forward.tp += exchange;
        cost.exposed_backward.tp += exchange;  // the gradients' reduce-scatter moves as much
        cost.kernels_forward += 2;
        cost.kernels_backward += 2;
    }
    const double gather = gather_operand_seconds(s, model.hidden);
    cost.exposed_forward.tp += tp_exposed(s, gather, qkv.forward);
    cost.exposed_backward.tp +=
        beside(s, gather, qkv.input_gradient) + tp_reduce_exposed(s, tp_reduce_seconds(s, model.hidden), qkv.weight_gradient);
    return sizes;
}

/// Multi-latent attention (arXiv 2405.04434): low-rank down projections outside the tp region, up projections inside.
CoreSizes add_latent(PieceCost& cost, const Shard& s) {
    const ModelSpec& model = s.model();
    const MlaSpec& mla = *model.mla;
    const std::int64_t heads = model.heads / s.tp;
    const CoreSizes sizes{heads, heads, mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim};
    const std::int64_t kv_down = mla.kv_lora_rank + mla.qk_rope_head_dim;
    const std::int64_t kv_up = heads * (mla.qk_nope_head_dim + mla.v_head_dim);
    const auto add = [&cost](const Projection& p, int kernels) {
        cost.forward += p.forward;
        cost.backward += p.backward();
        cost.weight_gradient += p.weight_gradient;
        cost.forward_flops += p.flops;
        cost.kernels_forward += kernels;
        cost.kernels_backward += 2 * kernels;
    };
    Shard outside = s;
    outside.tokens = s.tokens_outside;
    double up = 0, up_flops = 0;
    PieceCost quantised;  // operands of the up projections
    if (mla.q_lora_rank > 0) {
        add(Projection(outside, model.hidden, mla.q_lora_rank), 2);
        cost += quantise_linear(outside, LinearInput::plain, outside.tokens, model.hidden, mla.q_lora_rank);
        const Projection q_up(s, mla.q_lora_rank, sizes.q());
        add(q_up, 2);
        quantised += quantise_column_parallel(s, LinearInput::normed, mla.q_lora_rank, sizes.q());
        up += q_up.forward;
        up_flops += q_up.flops;
    } else {
        const Projection q(s, model.hidden, sizes.q());
        add(q, 2);
        quantised += quantise_column_parallel(s, LinearInput::plain, model.hidden, sizes.q());
        up += q.forward;
        up_flops += q.flops;
    }
    add(Projection(outside, model.hidden, kv_down), 2);
    cost += quantise_linear(outside, LinearInput::plain, outside.tokens, model.hidden, kv_down);
    const Projection kv(s, mla.kv_lora_rank, kv_up);
    add(kv, 2);
    quantised += quantise_column_parallel(s, LinearInput::normed, mla.kv_lora_rank, kv_up);
    cost += quantised;
    up += kv.forward;
    up_flops += kv.flops;
    // q and k are put together from their rotated and unrotated parts.
    const std::int64_t assembled = s.tokens * (sizes.q() + sizes.k()) * s.element;
    const double assemble = s.kernels->memory_bound(static_cast<double>(2 * assembled));
    cost.forward += assemble;
    cost.backward += 2 * assemble;
    cost.kernels_forward += 6;
    cost.kernels_backward += 8;
    if (s.recomputes(RecomputeModule::mla_up_proj)) {
        cost.recompute += up + quantised.forward + assemble;
        cost.recompute_flops += up_flops;
    }
    // The latents enter the tp region; queries without a latent enter it as the hidden state itself.
    const std::int64_t entering = (mla.q_lora_rank > 0 ? mla.q_lora_rank : model.hidden) + kv_down;
    const double gather = gather_operand_seconds(s, entering);
    cost.exposed_forward.tp += gather;
    cost.exposed_backward.tp += gather + tp_reduce_seconds(s, entering);
    return sizes;
}

}  // namespace

PieceCost attention_cost(const Shard& s, std::int64_t window) {
    const ModelSpec& model = s.model();
    PieceCost cost;
    const std::int64_t stream = s.tokens_outside * model.hidden * s.element;  // one residual-stream tensor

    cost += stream_norms_cost(s);

    const CoreSizes sizes = model.mla ? add_latent(cost, s) : add_qkv(cost, s);
    add_core(cost, s, sizes, window);

    const Projection output(s, sizes.o(), model.hidden);
    cost.forward += output.forward;
    cost.backward += output.backward();
    cost.weight_gradient += output.weight_gradient;
    cost.forward_flops += output.flops;
    cost += quantise_row_parallel(s, LinearInput::plain, sizes.o(), model.hidden);
    const double reduce = tp_reduce_seconds(s, model.hidden);
    cost.exposed_forward.tp += tp_exposed(s, reduce, output.forward);
    cost.exposed_backward.tp += tp_exposed(s, gather_operand_seconds(s, model.hidden), output.input_gradient);

    // Bias, dropout and residual addition in one kernel, behind a factor of the model's in one of its own.
    cost += residual_multiplier_cost(s);
    cost.forward += s.kernels->memory_bound(static_cast<double>(3 * stream));
    cost.backward += s.kernels->memory_bound(static_cast<double>(2 * stream));
    cost.kernels_forward += 2;
    cost.kernels_backward += 3;
    return cost;
}

}  // namespace mgplan::simulator
