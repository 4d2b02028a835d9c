#include "simulator/piece/time_policies.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

#include "plan/text/errors.hpp"
#include "plan/training/kernel_fusions.hpp"
#include "simulator/piece/step_edits.hpp"

namespace mgplan::simulator::timed {
namespace {

bool gathers_or_reduces(const PieceStep& step) {
    return starts_over(step, LayerGroup::tp);
}

double scores_of(const model::AttentionPart& part) {
    return static_cast<double>(part.batch * part.heads) * static_cast<double>(part.queries) * static_cast<double>(part.keys);
}

}  // namespace

// --- Attention -----------------------------------------------------------------------------------------------------------

bool splits_by_views(const PolicyContext& context) {
    return context.latent() == nullptr;
}

void split_by_views(LayerEditor& layer, const PolicyContext& /*context*/) {
    std::erase_if(layer.forward_steps(), [](const PieceStep& step) { return op_named(step, "columns"); });
    std::erase_if(layer.backward_steps(), [](const PieceStep& step) { return op_named(step, "columns"); });
    PieceSteps& backward = layer.backward_steps();
    for (std::size_t i = 0; i + 1 < backward.size(); ++i) {
        while (i + 1 < backward.size() && op_named(backward[i], "set_columns") && op_named(backward[i + 1], "set_columns")) {
            backward[i].op.bytes_read += backward[i + 1].op.bytes_read;
            backward[i].op.bytes_written += backward[i + 1].op.bytes_written;
            backward.erase(backward.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
    }
}

bool keeps_exchanged_heads(const PolicyContext& context) {
    return context.sizes.cp > 1 && context.sizes.cp_comm_type == CpCommType::a2a;
}

void keep_exchanged_heads(LayerEditor& layer, const PolicyContext& /*context*/) {
    // The backward exchanges output, its gradient, queries, keys and values, in this order, then three gradients back.
    PieceSteps& steps = layer.backward_steps();
    constexpr int kGradient = 1, kBefore = 5;
    int exchange = 0;
    for (std::size_t i = 0; i < steps.size() && exchange < kBefore; ++i) {
        if (!starts_over(steps[i], LayerGroup::cp) || steps[i].pass == StepPass::recompute) continue;
        MGPLAN_ASSERT(i > 0 && waits_at_once(steps, i) && i + 2 < steps.size() && op_named(steps[i - 1], "swap_leading") &&
                          op_named(steps[i + 2], "reorder_blocks"),
                      "an exchange of heads");
        if (exchange++ == kGradient) continue;
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i) - 1, steps.begin() + static_cast<std::ptrdiff_t>(i) + 3);
        i -= 2;
    }
}

bool passes_keys_around(const PolicyContext& context) {
    return context.sizes.cp > 1 && context.sizes.cp_comm_type == CpCommType::p2p;
}

void pass_gradients_beside(LayerEditor& layer, const PolicyContext& /*context*/) {
    PieceSteps& steps = layer.backward_steps();
    std::size_t attention = steps.size();
    std::size_t parts = 0;
    for (const PieceStep& step : steps) parts += op_named(step, "attention_backward") ? 1 : 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (op_named(steps[i], "attention_backward")) {
            attention = i;
            --parts;
        }
        // The last hop returns the gradients, with nothing left to overlap it.
        if (parts == 0 || attention == steps.size() || !starts_over(steps[i], LayerGroup::cp) || steps[i].pass == StepPass::recompute)
            continue;
        move_step(steps, i, attention);
        attention = steps.size();
    }
}

bool gathers_keys(const PolicyContext& context) {
    return context.sizes.cp > 1 && context.sizes.cp_comm_type == CpCommType::all_gather;
}

void attend_to_gathered(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (const StepPass pass : {StepPass::forward, StepPass::recompute, StepPass::input_gradient}) {
            const auto attends = [&](const PieceStep& step) { return step.pass == pass && step.op.part.queries > 0; };
            const auto first = std::find_if(steps->begin(), steps->end(), attends);
            if (first == steps->end()) continue;
            const auto end = std::find_if(first, steps->end(), [](const PieceStep& step) { return step.kind == StepKind::start; });
            const auto last = std::find_if(std::make_reverse_iterator(end), std::make_reverse_iterator(first), attends).base();
            for (auto step = first + 1; step < last; ++step) {
                if (!attends(*step)) continue;
                first->op.part.keys += step->op.part.keys;
                first->op.flops += step->op.flops;
                first->op.bytes_read += step->op.bytes_read;
                first->op.bytes_written += step->op.bytes_written;
            }
            // Between the parts and after the last: sums of partial results, copies of gradients to their places.
            steps->erase(std::remove_if(first + 1, end,
                                        [&](const PieceStep& step) {
                                            return attends(step) || op_named(step, "merge_attention") || op_named(step, "add") ||
                                                   op_named(step, "copy");
                                        }),
                         end);
        }
    }
}

bool fuses_attention(const PolicyContext& context) {
    return context.training.attention == AttentionBackend::flash;
}

void fuse_attention(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) step.op.part.fused = step.op.part.queries > 0;
    }
}

namespace {

/// Adds passes of softmax or dropout, each a read or a write of every score in the storage type, to unfused attention.
void add_score_passes(LayerEditor& layer, const PolicyContext& context, double forward, double backward) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& step = (*steps)[i];
            if (step.op.part.queries == 0 || step.op.part.fused) continue;
            const double passes = step.op.name == "attention" ? forward : backward;
            insert_at(
                *steps, i + 1,
                stream_op(step, "softmax_passes", passes * scores_of(step.op.part) * static_cast<double>(bytes_of(context.sizes.dtype))));
            ++i;
        }
    }
}

}  // namespace

bool softmax_by_pytorch(const PolicyContext& context) {
    if (context.training.attention == AttentionBackend::flash) return false;
    // megatron/core/fusions/fused_softmax.py, is_kernel_available: 17 to 16,384 keys, rows and keys in multiples of four, and a number of
    // (sequence, head) pairs that fills its blocks of four warps (csrc/megatron/scaled_upper_triang_masked_softmax.h: a warp per row above
    // 128 keys, else per two rows).
    const std::int64_t keys = context.sizes.sequence, rows = keys / context.sizes.cp;
    const std::int64_t in_block = keys > 128 ? 4 : 8, pairs = context.sizes.micro_batch * context.heads() / context.sizes.tp;
    const bool fits = keys > 16 && keys <= 16384 && rows % 4 == 0 && keys % 4 == 0 && pairs % in_block == 0;
    return !fits || !context.megatron().masked_softmax_fusion;
}

void pass_scores_through_pytorch(LayerEditor& layer, const PolicyContext& context) {
    // Scale 2, fill 2, to fp32 1 + 2, softmax 4, back 2 + 1; backward: 1 + 2, 6, 2 + 1, fill 2, scale 2. The softmax itself has 2 and 3.
    add_score_passes(layer, context, 14 - 2, 16 - 3);
}

bool drops_scores(const PolicyContext& context) {
    return context.scores().dropout > 0;
}

void drop_scores(LayerEditor& layer, const PolicyContext& context) {
    add_score_passes(layer, context, 2.5, 2.5);
    // Instructions with which a fused kernel draws a pair's random number and applies it, one of 128 a clock and multiprocessor. Dropout
    // leaves 75 to 85 % of FlashAttention 4's rate forward and 60 to 70 % backward on GB200, and about the same of cuDNN's
    // (Dao-AILab/flash-attention, pull request 2597); without it 1,418 and 1,209 TFLOP/s, causal, heads of 128 (pull request 2280), that is
    // 1,806 and 5,293 clocks for 128 queries by 128 keys, of which a quarter and 54 % more are 3.5 and 22 instructions a pair.
    constexpr double kForward = 3.5, kBackward = 22;
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) {
            const model::AttentionPart& part = step.op.part;
            if (part.queries == 0 || !part.fused) continue;
            const bool forward = step.op.name == "attention";
            const auto products = static_cast<double>(forward ? part.qk_dim + part.v_dim : 3 * part.qk_dim + 2 * part.v_dim);
            step.op.arithmetic.instructions = step.op.flops / (2 * products) * (forward ? kForward : kBackward);
        }
    }
}

// --- Linear layers -------------------------------------------------------------------------------------------------------

void fuse_biases(LayerEditor& layer, const PolicyContext& context) {
    // Without their fusions PyTorch adds a bias before the activation (mlp.py) or the residual (bias_dropout_add_unfused), and drops by a
    // kernel that reads and writes the sum.
    const auto apart = [&](const PieceStep& next) {
        if (op_named(next, "activation")) {
            const bool fused = context.megatron().bias_activation_fusion && may_fuse_activation(context.model);
            return !fused && context.mixture() == nullptr;  // experts' biases are part of their GEMMs
        }
        return op_named(next, "dropout_add") && !(context.megatron().bias_dropout_fusion && may_fuse_dropout(context.model));
    };
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& step = (*steps)[i];
            const bool own_kernel = op_named(step, "add_bias") && i + 1 < steps->size() && apart((*steps)[i + 1]);
            if ((op_named(step, "add_bias") && !own_kernel) || op_named(step, "bias_gradient")) {
                steps->erase(steps->begin() + static_cast<std::ptrdiff_t>(i--));
            } else if (op_named(step, "dropout_add") && apart(step) && context.layer.residual.dropout > 0) {
                insert_at(*steps, i++, stream_op(step, "dropout", 2 * static_cast<double>(step.op.bytes_written)));
            }
        }
    }
}

bool reduces_behind_products(const PolicyContext& context) {
    return context.sizes.tp > 1 && !context.sizes.sequence_parallel && !context.megatron().async_tp_reduce;
}

void reduce_behind_products(LayerEditor& layer, const PolicyContext& /*context*/) {
    start_where_waited_for(layer.backward_steps());
}

bool overlaps_tp(const PolicyContext& context) {
    return context.switches().overlap_tp && context.sizes.tp > 1;
}

void overlap_in_chunks(LayerEditor& layer, const PolicyContext& /*context*/) {
    // Gathers and reductions of the backward's linear layers move round a ring: a rank begins with its own chunk, and all are hidden. The
    // reduction after a forward's GEMM is a pipeline of four parts, of which the last is exposed (initialize_ub: "ring_exchange",
    // "pipeline"). Communication kernels occupy 16 multiprocessors, which the GEMM leaves free (num_sm and set_sm_margin in
    // get_default_config). In a ring copy engines move the data; the slowdown of a GEMM by their traffic is unknown, and assumed to be the
    // same.
    constexpr double kPipelined = 0.25;
    constexpr std::int64_t kHeld = 16;
    for (PieceSteps* pointer : {&layer.forward_steps(), &layer.backward_steps()}) {
        PieceSteps& steps = *pointer;
        for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
            if (!gathers_or_reduces(steps[i])) continue;
            steps[i].multiprocessors = kHeld;
            if (!waits_at_once(steps, i)) continue;
            const auto multiplies = [&](std::size_t place) { return is_product(steps[place]) && !steps[place].op.product.accumulate; };
            const bool gathers = steps[i].collective == model::CollectiveKind::all_gather;
            if (gathers && i + 2 < steps.size() && multiplies(i + 2)) {
                std::swap(steps[i + 1], steps[i + 2]);  // start, product, wait
                i += 2;
            } else if (!gathers && i > 0 && multiplies(i - 1) && steps[i].pass != StepPass::input_gradient) {
                // Start, part, GEMM, wait: the first part is waited for instead of the last, which takes the same time.
                PieceStep part = steps[i + 1];
                part.share = kPipelined;
                move_step(steps, i, i - 1);
                insert_at(steps, i, part);
                i += 2;
            }
        }
    }
}

bool recomputes_mlp(const PolicyContext& context) {
    return context.sizes.modules.contains(RecomputeModule::mlp);
}

void recompute_second_product(LayerEditor& layer, const PolicyContext& /*context*/) {
    const PieceSteps& forward = layer.forward_steps();
    PieceSteps& backward = layer.backward_steps();
    const auto activates = [](const PieceStep& step) { return op_named(step, "activation") || op_named(step, "xielu"); };
    const auto activation = std::find_if(forward.begin(), forward.end(), activates);
    const auto again = std::find_if(backward.begin(), backward.end(),
                                    [&](const PieceStep& step) { return activates(step) && step.pass == StepPass::recompute; });
    MGPLAN_ASSERT(activation != forward.end() && again != backward.end(), "an MLP that is recomputed has its activation in both passes");
    PieceSteps second;
    for (auto step = activation + 1; step != forward.end() && !op_named(*step, "dropout_add"); ++step) {
        second.push_back(*step);
        second.back().pass = StepPass::recompute;
        second.back().number += 1'000'000;  // another collective than the forward's
    }
    backward.insert(again + 1, second.begin(), second.end());
}

namespace {

/// Elements of the weight that a step computes the gradient of; 0: it does not.
double gradient_elements(const PieceStep& step) {
    const auto& [product, grouped] = std::tie(step.op.product, step.op.grouped);
    if (product.m > 0 && product.accumulate) return static_cast<double>(product.m) * static_cast<double>(product.n);
    if (grouped.groups > 0 && grouped.accumulate)
        return static_cast<double>(grouped.groups) * static_cast<double>(grouped.m) * static_cast<double>(grouped.n);
    return 0;
}

}  // namespace

bool adds_gradients_apart(const PolicyContext& context) {
    return !context.megatron().gradient_accumulation_fusion;
}

void add_gradients_apart(LayerEditor& layer, const PolicyContext& context) {
    // The hook reads the gradient, and reads and writes the main gradient.
    const auto element = static_cast<double>(bytes_of(context.sizes.dtype) + 2 * bytes_of(context.training.grad_dtype));
    PieceSteps& steps = layer.backward_steps();
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const double elements = gradient_elements(steps[i]);
        if (elements == 0) continue;
        PieceStep sum = stream_op(steps[i], "add_gradient", elements * element);
        sum.op.launches = std::max<std::int64_t>(1, steps[i].op.grouped.groups);
        insert_at(steps, ++i, sum);
    }
}

bool activates_experts_by_pytorch(const PolicyContext& context) {
    const Mixture* const mixture = context.mixture();
    return mixture != nullptr && mixture->gated && !context.megatron().bias_activation_fusion && !fuses_expert_activations(context);
}

void activate_by_pytorch(LayerEditor& layer, const PolicyContext& /*context*/) {
    // In widths of the activation. Forward: activated half 2, product 3, where the fused kernel has 3. Backward: gradients of both factors
    // 6, of the activation 3, both joined 4, where the fused kernel has 5. Weighted by a probability 2 more forward, 4 backward.
    double width = 0;  // bytes of an activation
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const bool ahead = op_named((*steps)[i], "activation");
            if (!ahead && !op_named((*steps)[i], "activation_backward")) continue;
            if (ahead) width = static_cast<double>((*steps)[i].op.bytes_written);
            const auto product = std::find_if(steps->begin() + static_cast<std::ptrdiff_t>(i), steps->end(),
                                              [](const PieceStep& step) { return is_product(step) || is_grouped(step); });
            const bool weighted = product != steps->end() && is_grouped(*product);
            PieceStep more = stream_op((*steps)[i], "unfused_activation", width * ((ahead ? 2 : 8) + (weighted ? (ahead ? 2 : 4) : 0)));
            more.op.launches = (ahead ? 1 : 3) + (weighted ? (ahead ? 1 : 2) : 0);
            insert_at(*steps, ++i, more);
        }
    }
}

bool turns_by_pytorch(const PolicyContext& context) {
    return !context.megatron().rope_fusion;
}

void turn_by_pytorch(LayerEditor& layer, const PolicyContext& context) {
    // Passes over queries or keys, reads and writes: negated half 1, joined with the other half 2, times cosine 2, times sine 2, sum 3,
    // joined with what is not turned 2. Backward: times cosine 2, times sine 2, negated half 1, joined halves 2, sum 3, zeros and copy of
    // the part 3. Latent attention sorts even and odd values too. The fused kernel's two passes are in the record.
    const double latent = context.latent() != nullptr ? 2 : 0;
    constexpr std::int64_t kKernels = 7;
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& step = (*steps)[i];
            if (!op_named(step, "rotary")) continue;
            const double passes = (step.pass == StepPass::input_gradient ? 13 : 12) + latent - 2;
            PieceStep more =
                stream_op(step, "unfused_rotary", passes / 2 * static_cast<double>(step.op.bytes_read + step.op.bytes_written));
            more.op.launches = kKernels;
            insert_at(*steps, ++i, more);
        }
    }
}

// --- Ends ----------------------------------------------------------------------------------------------------------------

void make_table_gradient(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t entries = context.model.padded_vocab(context.sizes.tp) / context.sizes.tp * context.model.hidden;
    const std::int64_t element = bytes_of(context.sizes.dtype), rows = context.sizes.rows() * context.model.hidden;
    for (PieceStep& step : layer.backward_steps()) {
        if (!op_named(step, "embedding_backward")) continue;
        step.op.bytes_read = rows * 2 * element + entries * (element + context.switches().gradient_bytes);
        step.op.bytes_written = rows * element + entries * (element + context.switches().gradient_bytes);
        return;  // only the token table; positions come after it
    }
}

void lose_in_fp32(LayerEditor& head, const PolicyContext& context) {
    const bool fused = context.training.fused_cross_entropy;
    PieceSteps &forward = head.forward_steps(), &backward = head.backward_steps();
    const auto logits = std::find_if(forward.begin(), forward.end(), is_product);
    MGPLAN_ASSERT(logits != forward.end(), "the output layer");
    const double elements = static_cast<double>(logits->op.product.m) * static_cast<double>(logits->op.product.n);
    const auto replace = [](PieceSteps& steps, std::string_view old, std::string_view name, double bytes) {
        const auto found = std::find_if(steps.begin(), steps.end(), [&](const PieceStep& step) { return op_named(step, old); });
        MGPLAN_ASSERT(found != steps.end(), old);
        *found = stream_op(*found, name, bytes);
    };
    // Unfused: cast to fp32, maximum, subtract, exponential, sum, divide; fused: two passes over the 16-bit logits. The unfused backward
    // scales the forward's result and casts it.
    std::erase_if(forward, [](const PieceStep& step) { return op_named(step, "softmax_sums"); });
    replace(forward, "row_maximum", fused ? "fused_cross_entropy" : "fp32_cross_entropy", elements * (fused ? 6 : 30));
    replace(backward, "cross_entropy_backward", fused ? "fused_cross_entropy" : "scaled_exponentials", elements * (fused ? 6 : 14));
}

}  // namespace mgplan::simulator::timed
