// Computation and communication of Megatron-LM's MoE layers that differ from mgplan's own.

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/cluster/architectures.hpp"
#include "plan/text/errors.hpp"
#include "simulator/piece/fp8_policies.hpp"
#include "simulator/piece/step_edits.hpp"
#include "simulator/piece/time_policies.hpp"

namespace mgplan::simulator::timed {

std::int64_t dispatcher_multiprocessors(TokenDispatcher dispatcher, const MegatronSwitches& switches) {
    if (switches.dispatcher_sms > 0) return switches.dispatcher_sms;
    return dispatcher == TokenDispatcher::deep_ep ? 20 : 24;
}

bool sends_tokens_once(const PolicyContext& context) {
    if (context.mixture() == nullptr || context.sizes.ep == 1) return false;
    const TokenDispatcher dispatcher = context.switches().dispatcher;
    return dispatcher == TokenDispatcher::deep_ep || dispatcher == TokenDispatcher::hybrid_ep;
}

namespace {

bool exchanges_over_ep(const PieceStep& step) {
    return starts_over(step, LayerGroup::ep) && step.collective == model::CollectiveKind::all_to_all;
}

/// Bytes of the largest exchange: of whole rows, rather than of one value for each of them.
std::int64_t bytes_of_rows(const PieceSteps& steps) {
    std::int64_t largest = 0;
    for (const PieceStep& step : steps) {
        if (exchanges_over_ep(step)) largest = std::max({largest, step.sent, step.received});
    }
    return largest;
}

/// Bytes of the tokens that the rank's experts receive.
double received_bytes(const PolicyContext& context, const PieceSteps& forward) {
    const auto first = std::find_if(forward.begin(), forward.end(), is_grouped);
    if (first == forward.end()) return 0;
    return static_cast<double>(first->op.grouped.groups * first->op.grouped.m) *
           static_cast<double>(context.model.routed_width() * bytes_of(context.sizes.dtype));
}

/// True for permutations of copies, the bookkeeping for them, and sorts after an exchange.
bool arranges_copies(const PieceStep& step) {
    for (const std::string_view name : {"count_by_expert", "sort_by_expert", "permute_probabilities", "unpermute_probabilities",
                                        "permute_rows", "unpermute_rows", "reorder_blocks"}) {
        if (op_named(step, name)) return true;
    }
    return false;
}

}  // namespace

void send_tokens_once(LayerEditor& layer, const PolicyContext& context) {
    // Tokens are sent unpermuted, with their probabilities and choices. After the exchange the received rows are read and the experts'
    // copies written; before the way back the results are summed.
    const std::int64_t top_k = context.mixture()->top_k;
    const bool hybrid = context.switches().dispatcher == TokenDispatcher::hybrid_ep;
    const bool in_exchange = context.megatron().permute_in_hybrid_ep && hybrid;
    const double received = received_bytes(context, layer.forward_steps());
    const double moved = received * (1 + share_of_different(top_k, static_cast<double>(context.sizes.ep)));
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        const std::int64_t largest = bytes_of_rows(*steps);
        PieceSteps kept;
        std::vector<int> carried;  // collectives that are part of another
        int exchange = 0;
        for (const PieceStep& step : *steps) {
            if (arranges_copies(step)) continue;
            if (step.kind == StepKind::wait && std::find(carried.begin(), carried.end(), step.number) != carried.end()) continue;
            if (!starts_over(step, LayerGroup::ep)) {
                const bool arrived = step.kind == StepKind::wait && step.group == LayerGroup::ep && exchange % 2 == 1;
                kept.push_back(step);
                if (arrived && !in_exchange) kept.push_back(stream_op(step, "permute_rows", moved));
                continue;
            }
            if (!exchanges_over_ep(step) || std::max(step.sent, step.received) < largest) {
                carried.push_back(step.number);
                continue;
            }
            if (exchange % 2 == 1 && !in_exchange) kept.push_back(stream_op(step, "unpermute_rows", moved));
            ++exchange;
            kept.push_back(step);
            kept.back().copies = top_k;
            // For HybridEP 16 multiprocessors reach the rate of 32 (deepseek-ai/DeepEP, docs/README_Hybrid-EP.md): they are no limit.
            if (!hybrid) kept.back().multiprocessors = dispatcher_multiprocessors(context.switches().dispatcher, context.megatron());
        }
        *steps = std::move(kept);
    }
}

bool gathers_tokens(const PolicyContext& context) {
    return context.mixture() != nullptr && context.switches().dispatcher == TokenDispatcher::all_gather;
}

void gather_tokens(LayerEditor& layer, const PolicyContext& context) {
    // Rows of all tokens of the group instead of the sent copies; probabilities travel as a table of all experts.
    const std::int64_t tokens = context.sizes.rows_outside() * context.sizes.ep;
    const std::int64_t row = context.model.routed_width() * bytes_of(context.sizes.dtype);
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        const std::int64_t largest = bytes_of_rows(*steps);
        for (PieceStep& step : *steps) {
            if (!exchanges_over_ep(step)) continue;
            const bool rows = std::max(step.sent, step.received) == largest;
            step.collective = model::CollectiveKind::all_gather;
            step.sent = step.received = tokens * (rows ? row : context.mixture()->experts * 4);
        }
    }
}

bool multiplies_experts_one_by_one(const PolicyContext& context) {
    return context.mixture() != nullptr && !context.mixture()->grouped_gemm && context.mixture()->experts / context.sizes.ep > 1;
}

void multiply_experts_one_by_one(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) {
            if (step.op.grouped.groups > 0) step.op.name = "matmul_by_group";
        }
    }
}

bool sorts_in_place(const PolicyContext& context) {
    return context.mixture() != nullptr && context.switches().dispatcher == TokenDispatcher::all_to_all && context.mixture()->experts > 1 &&
           context.sizes.ep * context.sizes.etp == 1;
}

void sort_in_place(LayerEditor& layer, const PolicyContext& /*context*/) {
    const PieceSteps& forward = layer.forward_steps();
    const auto permuted =
        std::find_if(forward.begin(), forward.end(), [](const PieceStep& step) { return op_named(step, "permute_rows"); });
    MGPLAN_ASSERT(permuted != forward.end(), "rows are permuted");
    const double rows = 2.0 * static_cast<double>(permuted->op.bytes_written);  // read and written
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& step = (*steps)[i];
            if (!op_named(step, "permute_rows") && !op_named(step, "unpermute_rows")) continue;
            insert_at(*steps, op_named(step, "unpermute_rows") ? i : i + 1, stream_op(step, "reorder_blocks", rows));
            ++i;
        }
    }
}

void route_by_pytorch(LayerEditor& layer, const PolicyContext& context) {
    // Scores, the choice and two tables, in fp32; with groups of experts also their sums, a mask and its result (moe_utils.py,
    // group_limited_topk); for a balancing loss within each sequence the scores and choices once more.
    const Mixture& moe = *context.mixture();
    const double passes = 6 + (moe.groups > 0 ? 4 : 0) + (moe.sequence_auxiliary_loss > 0 ? 2 : 0);
    const double bytes = 4 * passes * static_cast<double>(context.sizes.rows_outside() * moe.experts);
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (const StepPass pass : {StepPass::forward, StepPass::recompute, StepPass::input_gradient}) {
            const auto scores = [&](const PieceStep& step) {
                return step.router && step.pass == pass && step.kind == StepKind::op && !is_product(step);
            };
            const auto first = std::find_if(steps->begin(), steps->end(), scores);
            if (first == steps->end()) continue;
            *first = stream_op(*first, "router_scores", bytes);
            steps->erase(std::remove_if(first + 1, steps->end(), scores), steps->end());
        }
    }
}

bool exchanges_copies(const PolicyContext& context) {
    return context.mixture() != nullptr && !sends_tokens_once(context);
}

void move_probabilities_with_rows(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        std::int64_t largest = 0;
        for (const PieceStep& step : *steps) {
            if (op_named(step, "reorder_blocks")) largest = std::max(largest, step.op.bytes_written);
        }
        std::erase_if(*steps, [&](const PieceStep& step) {
            return op_named(step, "permute_probabilities") || op_named(step, "unpermute_probabilities") ||
                   (op_named(step, "reorder_blocks") && step.op.bytes_written < largest);
        });
    }
}

bool sums_copies_by_pytorch(const PolicyContext& context) {
    // HybridEP's kernels permute.
    return context.mixture() != nullptr && !context.megatron().moe_permute_fusion &&
           context.switches().dispatcher != TokenDispatcher::hybrid_ep;
}

void sum_copies_by_pytorch(LayerEditor& layer, const PolicyContext& context) {
    // unpermute: scatter_add_ over the rows; permute: index_select, whose backward is index_add_. Their gathers move what a fused kernel
    // does.
    const double values = received_bytes(context, layer.forward_steps()) / static_cast<double>(bytes_of(context.sizes.dtype));
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) {
            if (!op_named(step, "unpermute_rows")) continue;
            step.op.name = "scatter_rows";
            step.op.flops = values;
        }
    }
}

// --- Experts -------------------------------------------------------------------------------------------------------------

bool adds_expert_biases(const PolicyContext& context) {
    return context.mixture() != nullptr && context.mixture()->bias;
}

void add_expert_biases(LayerEditor& layer, const PolicyContext& context) {
    // The probabilities are fp32 and so are the sums: b·p is written (4 bytes an element), the rows are read with it and written (2 + 4 +
    // 4), joined (4 + 4) and cast (4 + 2). Backward: cast (2 + 4), the rows' own gradients cast (4 + 2) and joined (2 + 2), and for
    // probabilities and biases each a product and a sum (4 + 4 + 4). The gradients of the first GEMM's biases are summed over those of the
    // rows. Launches: two splits of views, a product and a sum for each expert; six and a sum of biases in the backward.
    const double rows = received_bytes(context, layer.forward_steps()) / static_cast<double>(bytes_of(context.sizes.dtype));
    const std::int64_t experts = context.mixture()->experts / context.sizes.ep;
    const auto replace = [](PieceSteps& steps, std::string_view old, PieceStep with) {
        const auto found = std::find_if(steps.begin(), steps.end(), [&](const PieceStep& step) { return op_named(step, old); });
        if (found == steps.end()) return;
        with.pass = found->pass;
        *found = with;
        std::erase_if(steps, [&](const PieceStep& step) { return op_named(step, old) && step.pass == with.pass; });
    };
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        PieceStep added = stream_op({}, "expert_biases", 28 * rows), summed = stream_op({}, "expert_bias_gradients", 40 * rows);
        added.launches = 4 * experts;
        summed.launches = 9 * experts;
        replace(*steps, "add_weighted_bias", added);
        replace(*steps, "weighted_bias_gradient", summed);
        const auto of_first = [](const PieceStep& step) { return op_named(step, "bias_gradient"); };
        if (const auto found = std::find_if(steps->begin(), steps->end(), of_first); found != steps->end()) {
            const auto product =
                std::find_if(found, steps->end(), is_grouped);  // its own weights' gradient: (first, rows) by (rows, hidden)
            MGPLAN_ASSERT(product != steps->end() && product->op.grouped.accumulate, "the first product's weight gradient");
            const model::GroupedProductSizes& sizes = product->op.grouped;
            *found = stream_op(*found, "expert_bias_gradients",
                               static_cast<double>(sizes.groups * sizes.k * sizes.m * bytes_of(context.sizes.dtype)));
        }
    }
}

bool clamps_products(const PolicyContext& context) {
    const Mixture* const mixture = context.mixture();
    return mixture != nullptr && mixture->grouped_gemm && mixture->gated &&
           (mixture->activation == Activation::clamped_swish ||
            (mixture->activation == Activation::gelu && context.megatron().activation_clamp > 0)) &&
           context.megatron().bias_activation_fusion && !fuses_expert_activations(context);
}

void clamp_products(LayerEditor& layer, const PolicyContext& /*context*/) {
    // Each half, as wide as the activation, is clamped (read and written), then joined again (read and written). Backward: the joined
    // gradient is split by views; each half's is masked by the GEMM result (two read, one written), and the two are joined.
    double width = 0;  // bytes of an activation
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const bool ahead = op_named((*steps)[i], "activation");
            if (!ahead && !op_named((*steps)[i], "activation_backward")) continue;
            // Shared experts have an activation of their own.
            const auto product = std::find_if(steps->begin() + static_cast<std::ptrdiff_t>(i), steps->end(),
                                              [](const PieceStep& step) { return is_product(step) || is_grouped(step); });
            if (product == steps->end() || !is_grouped(*product)) continue;
            if (ahead) width = static_cast<double>((*steps)[i].op.bytes_written);
            PieceStep clamp = stream_op((*steps)[i], ahead ? "clamp_product" : "clamp_product_backward", (ahead ? 8 : 10) * width);
            clamp.launches = 2;
            insert_at(*steps, ahead ? i : i + 1, clamp);
            ++i;
        }
    }
}

bool fuses_expert_activations(const PolicyContext& context) {
    const QuantisedFormat format = context.training.format();
    return context.mixture() != nullptr && context.megatron().op_fuser && context.mixture()->gated && fp8::products(context) &&
           (format == QuantisedFormat::mxfp8 || format == QuantisedFormat::nvfp4) &&
           context.sizes.traits.architecture >= architectures::kBlackwell;
}

void fuse_expert_activations(LayerEditor& layer, const PolicyContext& /*context*/) {
    const auto quantises = [](const PieceStep& step) {
        return op_named(step, "quantise") || op_named(step, "find_largest") || op_named(step, "find_largest_produced");
    };
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            if (!op_named((*steps)[i], "activation") && !op_named((*steps)[i], "activation_backward")) continue;
            std::size_t end = i + 1;
            while (end < steps->size() && quantises((*steps)[end])) ++end;
            const bool of_experts = end < steps->size() && is_grouped((*steps)[end]);
            if (!of_experts) continue;
            const StepPass pass = (*steps)[i].pass;
            steps->erase(std::remove_if(steps->begin() + static_cast<std::ptrdiff_t>(i), steps->begin() + static_cast<std::ptrdiff_t>(end),
                                        [&](const PieceStep& step) { return step.pass == pass; }),
                         steps->begin() + static_cast<std::ptrdiff_t>(end));
            --i;
        }
    }
}

bool pads_expert_rows(const PolicyContext& context) {
    // DeepEP and HybridEP pad during their permutation; a capacity gives aligned numbers of rows.
    return context.mixture() != nullptr && context.mixture()->grouped_gemm && fp8::products(context) &&
           context.switches().dispatcher == TokenDispatcher::all_to_all && !context.mixture()->pad_to_capacity &&
           context.mixture()->experts / context.sizes.ep > 1;
}

void pad_expert_rows(LayerEditor& layer, const PolicyContext& context) {
    // Before the first GEMM and after the second one every row is read and written, and the same for their gradients.
    const double rows = 2 * received_bytes(context, layer.forward_steps());
    const auto around = [&](PieceSteps& steps, bool again) {
        const auto of_pass = [&](const PieceStep& step) { return is_grouped(step) && (step.pass == StepPass::recompute) == again; };
        const auto first = std::find_if(steps.begin(), steps.end(), of_pass);
        if (first == steps.end()) return;
        const auto last = std::find_if(steps.rbegin(), steps.rend(), of_pass).base();
        PieceStep like = *first;
        if (like.pass == StepPass::weight_gradient) like.pass = StepPass::input_gradient;
        const std::size_t begin = static_cast<std::size_t>(first - steps.begin()), end = static_cast<std::size_t>(last - steps.begin());
        insert_at(steps, end, stream_op(like, "unpad_rows", rows));
        insert_at(steps, begin, stream_op(like, "pad_rows", rows));
    };
    around(layer.forward_steps(), false);
    around(layer.backward_steps(), true);
    around(layer.backward_steps(), false);
}

bool quantises_by_expert(const PolicyContext& context) {
    return context.mixture() != nullptr && context.mixture()->grouped_gemm && fp8::products(context) && !fuses_expert_activations(context);
}

void quantise_by_expert(LayerEditor& layer, const PolicyContext& context) {
    // Under tensorwise scaling each expert's rows have a tensor of their own, its data, transpose, scale and amax allocated one by one, and
    // three more kernels compute the amax and the scale; the other recipes allocate memory for all experts at once
    // (csrc/extensions/cast.cpp, split_quantize; csrc/quantizer.cpp, Float8CurrentScalingQuantizer).
    const std::int64_t experts = context.mixture()->experts / context.sizes.ep;
    const std::int64_t beside = context.training.format() == QuantisedFormat::tensorwise ? 2 * (3 + 5) : 0;
    const auto launch = [](PieceSteps& steps, StepPass pass, std::int64_t launches) {
        const auto product =
            std::find_if(steps.begin(), steps.end(), [&](const PieceStep& step) { return is_grouped(step) && step.pass == pass; });
        if (product != steps.end()) product->launches += launches;
    };
    launch(layer.forward_steps(), StepPass::forward, (8 + beside) * experts);
    launch(layer.backward_steps(), StepPass::recompute, (8 + beside) * experts);
    launch(layer.backward_steps(), StepPass::input_gradient, (14 + beside) * experts);
}

}  // namespace mgplan::simulator::timed
