#include "simulator/piece/recurrent_policies.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <variant>
#include <vector>

#include "model/layers/gated_delta_net.hpp"
#include "model/layers/mamba_mixer.hpp"
#include "model/ops/checks.hpp"
#include "model/ops/recurrent_arguments.hpp"
#include "model/ops/scratch.hpp"
#include "plan/text/errors.hpp"
#include "simulator/piece/step_edits.hpp"

namespace mgplan::simulator::recurrent {
namespace {

using model::MemoryCategory;

/// Tokens of a chunk (flash-linear-attention, ops/gated_delta_rule/chunk.py).
constexpr std::int64_t kChunk = 64;

const LayerEditor::Tensor& kept_output(LayerEditor& layer, std::string_view name) {
    const LayerEditor::Tensor* output = layer.find(layer.forward(), name);
    MGPLAN_ASSERT(output != nullptr, name);
    return *output;
}

/// Name of a state's output as the gated norm takes it: after the exchange of heads, if there is one.
std::string_view output_of(const PolicyContext& context, std::string_view whole, std::string_view by_sequence) {
    return context.sizes.cp > 1 ? by_sequence : whole;
}

/// Sizes of this rank's gated delta net. Rows are per rank and heads are not divided by cp: their product equals that after the exchange.
struct DeltaSizes {
    std::int64_t rows, value_heads, key_dim, value_dim;
    explicit DeltaSizes(const PolicyContext& context)
        : rows(context.sizes.rows()),
          value_heads(mixer_as<GatedDeltaNet>(context.layer)->value_heads / context.sizes.tp),
          key_dim(mixer_as<GatedDeltaNet>(context.layer)->key_dim),
          value_dim(mixer_as<GatedDeltaNet>(context.layer)->value_dim) {}
};

/// Sizes of this rank's delta rule.
model::DeltaRuleSizes rule_sizes(const PolicyContext& context) {
    const std::int64_t batch = context.sizes.micro_batch, cp = context.sizes.cp, places = context.sizes.rows() * cp / batch;
    const std::int64_t tp = context.sizes.tp * cp;  // divisor of the heads while the rule runs
    // Megatron-LM has kernels for gated delta nets, but no Kimi delta attention.
    if (const auto* const kimi = mixer_as<KimiDeltaAttention>(context.layer))
        return {.places = places,
                .batch = batch,
                .key_heads = kimi->heads / tp,
                .value_heads = kimi->heads / tp,
                .key_dim = kimi->head_dim,
                .value_dim = kimi->head_dim,
                .channel_decays = true};
    const auto* const net = mixer_as<GatedDeltaNet>(context.layer);
    MGPLAN_ASSERT(net != nullptr, "the layer has a delta rule");
    return {.places = places,
            .batch = batch,
            .key_heads = net->key_heads / tp,
            .value_heads = net->value_heads / tp,
            .key_dim = net->key_dim,
            .value_dim = net->value_dim};
}

/// Replaces the workspace of mgplan's chunked delta rule by the scratch of the sequential one, states before each chunk and each of its
/// tokens, as an estimate of the tensors between flash-linear-attention's kernels, which are not counted. Taken one after the other and
/// freed in reverse order, like an op's: fragmentation depends on it.
void hold_scratch_of_a_walk(LayerEditor& layer, TraceRange where, const PolicyContext& context) {
    struct Rule {
        LayerEditor::Tensor workspace;
        std::optional<LayerEditor::Tensor> unit_gradients;  ///< set in a backward; taken between the others and the sums
    };
    std::vector<Rule> rules;
    for (int which = 0; const LayerEditor::Tensor* found = layer.find(where, model::kRuleWorkspace, which); ++which) {
        rules.push_back({*found, {}});
        if (const auto* units = layer.find(where, "gradients of unit queries and keys", which)) rules.back().unit_gradients = *units;
    }
    for (const Rule& rule : rules) {
        const model::DeltaRuleWalk walk(rule_sizes(context));
        const std::int64_t wide = bytes_of(model::statistics_dtype(context.sizes.dtype)), last = LayerEditor::kRoom - 2;
        std::int64_t further = 0;
        const auto hold = [&](std::string_view name, std::int64_t values) {
            layer.add(name, MemoryCategory::workspace, values * wide, rule.workspace.taken + further,
                      rule.workspace.returned + last - further);
            ++further;
        };
        hold("kept shares of delta rule states", walk.kept);
        if (!rule.unit_gradients) continue;
        hold("delta rule states by chunk", walk.chunk_states);
        hold("delta rule states by place", walk.place_states);
        hold("delta rule state gradients", walk.state_gradients);
        hold("delta rule vectors", walk.vectors);
        layer.add("delta rule parameter sums", MemoryCategory::workspace, walk.sums * wide, rule.unit_gradients->taken + 1,
                  rule.unit_gradients->returned - 1);
    }
}

}  // namespace

bool scans(const PolicyContext& context) {
    return mixer_as<Mamba2>(context.layer) != nullptr;
}

bool applies_delta_rule(const PolicyContext& context) {
    return mixer_as<GatedDeltaNet>(context.layer) != nullptr;
}

void fuse_scans(LayerEditor& layer, const PolicyContext& context) {
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        layer.drop_all(where, model::kScanWorkspace);
        hold_scratch_of_a_walk(layer, where, context);
        layer.drop_all(where, model::kRuleWorkspace);
    }
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) step.op.own = {};
    }
}

void keep_gated_output(LayerEditor& layer, const PolicyContext& context) {
    const LayerEditor::Tensor& scanned = kept_output(layer, output_of(context, "scan output", model::kScannedBySequence));
    layer.add("gated scan output", MemoryCategory::activations, scanned.bytes, scanned.taken + 1, scanned.returned);
}

void keep_unit_keys(LayerEditor& layer, const PolicyContext& context) {
    const LayerEditor::Tensor& output = kept_output(layer, output_of(context, "delta rule output", model::kAttendedBySequence));
    const std::int64_t taken = output.taken - 1, returned = output.returned;
    const DeltaSizes sizes(context);
    const std::int64_t element = bytes_of(context.sizes.dtype), heads = sizes.rows * sizes.value_heads;
    layer.add("unit queries and keys", MemoryCategory::activations, 2 * heads * sizes.key_dim * element, taken, returned);
    layer.add("lengths of queries and keys", MemoryCategory::activations, 2 * heads * 4, taken, returned);
    layer.add("summed decays", MemoryCategory::activations, heads * 4, taken, returned);
    layer.add("strengths", MemoryCategory::activations, heads * element, taken, returned);
    layer.add("inverted matrices of chunks", MemoryCategory::activations, heads * kChunk * element, taken, returned);
}

bool exchanges_gates(const PolicyContext& context) {
    return context.sizes.cp > 1 && (scans(context) || applies_delta_rule(context));
}

void exchange_gates(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& state = (*steps)[i];
            const bool backward = timed::op_named(state, "state_space_scan_backward") || timed::op_named(state, "delta_rule_backward");
            if (!backward && !timed::op_named(state, "state_space_scan") && !timed::op_named(state, "delta_rule")) continue;
            const auto over_cp = [](const PieceStep& step) { return timed::starts_over(step, LayerGroup::cp); };
            const auto here = steps->begin() + static_cast<std::ptrdiff_t>(i);
            const auto in = std::find_if(std::make_reverse_iterator(here), steps->rend(), over_cp);
            const auto out = std::find_if(here, steps->end(), over_cp);
            MGPLAN_ASSERT(in != steps->rend() && out != steps->end(), "exchanges around a state");
            // Gates are as wide as the state's output, which the other exchange sends.
            PieceStep &widened = backward ? *out : *in, &as_wide = backward ? *in : *out;
            widened.sent += as_wide.sent;
            widened.received += as_wide.received;
        }
    }
}

void multiply_by_chunks(LayerEditor& layer, const PolicyContext& context) {
    const DeltaSizes sizes(context);
    const double heads = static_cast<double>(sizes.rows * sizes.value_heads), c = static_cast<double>(kChunk);
    const double k = static_cast<double>(sizes.key_dim), v = static_cast<double>(sizes.value_dim);
    // FLOPs per row and head, multiply and add counted as two: keys with keys and their inversion, both products with it; queries with keys
    // and the values weighted by them; the state's products with keys and queries, and its update.
    const double forward = 2 * heads * (c * k + c * c / 2 + c * (k + v) + c * (k + v) + 3 * k * v);
    // Written by one kernel and read by the next: unit queries and keys, inverted matrices, both products with them, new values, and a
    // state for each chunk.
    const double element = static_cast<double>(bytes_of(context.sizes.dtype));
    const double between = 2 * element * heads * (2 * k + c + (k + v) + v + k * v / c);
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) {
            const bool backward = timed::op_named(step, "delta_rule_backward");
            if (!backward && !timed::op_named(step, "delta_rule")) continue;
            // The backward recomputes states and new values, and has two products for each of the forward's.
            step.op.flops = backward ? 3 * forward : forward;
            const auto half = static_cast<std::int64_t>((backward ? 2 : 1) * between / 2);
            const auto rows = static_cast<std::int64_t>(element * heads * (2 * k + v));  // queries, keys, values, or their gradients
            step.op.bytes_read = half + rows;
            step.op.bytes_written = half + (backward ? rows : static_cast<std::int64_t>(element * heads * v));
        }
    }
}

}  // namespace mgplan::simulator::recurrent
