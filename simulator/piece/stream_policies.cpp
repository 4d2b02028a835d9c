#include "simulator/piece/stream_policies.hpp"

#include <algorithm>
#include <string_view>

#include "plan/text/errors.hpp"
#include "simulator/piece/step_edits.hpp"

namespace mgplan::simulator::streams {
namespace {

using model::MemoryCategory;
using timed::op_named;

/// Bytes of all streams of a rank's rows, in the storage type.
std::int64_t stream_bytes(const PolicyContext& context) {
    return context.sizes.rows_outside() * context.model.stream_width() * bytes_of(context.sizes.dtype);
}

/// True if bias, dropout and addition are separate kernels: always on main; on dev only with dropout, otherwise one compiled function.
bool adds_apart(const PolicyContext& context) {
    return !context.layer.residual.hyper_connections->learned_head || context.layer.residual.dropout > 0;
}

bool has_bias(const LayerEditor& layer, const PolicyContext& context) {
    if (layer.piece() == Piece::attention)
        return context.latent() != nullptr ? context.latent()->output_bias : context.attention()->output_bias;
    return layer.piece() == Piece::dense && feed_forward_as<Mlp>(context.layer)->bias;
}

LayerEditor::Tensor must(LayerEditor::Tensor* tensor, std::string_view name) {
    MGPLAN_ASSERT(tensor != nullptr, name);
    return *tensor;
}

/// Adds, after each op of that name, `passes` reads or writes of all streams by `kernels` kernels.
void add_passes(PieceSteps& steps, std::string_view op, double passes, std::int64_t kernels, std::int64_t bytes) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (!op_named(steps[i], op)) continue;
        PieceStep more = timed::stream_op(steps[i], "stream_passes", passes * static_cast<double>(bytes));
        more.launches = kernels - 1;
        timed::insert_at(steps, ++i, more);
    }
}

/// Rounds of two divisions, each with a sum and, on main, a bound. Main runs op by op; dev compiles them, to about one kernel per division,
/// because a row's and a column's sums read the result of the previous division (an assumption). The backward reruns the forward, followed
/// by about twice the number of kernels.
void balance_by_kernels(LayerEditor& layer, const PolicyContext& context) {
    const HyperConnections& sizes = *context.layer.residual.hyper_connections;
    const std::int64_t forward = sizes.sinkhorn_iterations * (sizes.learned_head ? 2 : 6);
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (PieceStep& step : *steps) {
            if (op_named(step, "balance_maps")) step.launches = forward;
            if (op_named(step, "balance_maps_backward")) step.launches = 3 * forward;
        }
    }
}

}  // namespace

bool mixed_by_kernels(const PolicyContext& context) {
    return context.layer.residual.hyper_connections.has_value() && !context.megatron().fused_streams;
}

void mix_by_kernels(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t all = stream_bytes(context);
    const bool apart = adds_apart(context), bias = has_bias(layer, context) && apart;
    // The streams mixed by their matrix; the half-layer's output spread over them, and its bias; the sum. All live until the sum exists.
    const LayerEditor::Tensor output = must(layer.find(layer.forward(), "residual stream"), "the streams behind a half");
    layer.add("mixed streams", MemoryCategory::activations, all, output.taken - 2, output.taken + 2);
    if (apart)
        layer.add("output of a half for each stream", MemoryCategory::activations, (bias ? 2 : 1) * all, output.taken - 2,
                  output.taken + 2);
    // Gradients by the sum, the mix and the maps live at the same time.
    const LayerEditor::Tensor by_maps = must(layer.find(layer.backward(), "residual stream gradient", 1), "the streams' gradient by maps");
    layer.add("stream gradients side by side", MemoryCategory::activations, all, by_maps.taken - 1, by_maps.returned + 1);
    // Forward, in passes of n S: the product with the matrix writes the input of the sum (2); if separate, so do the spread output and the
    // bias (2 each).
    const double forward = apart ? 4 + (bias ? 2 : 0) : 2;
    add_passes(layer.forward_steps(), "mix_streams", forward, apart ? (bias ? 4 : 3) : 2, all);
    add_passes(layer.backward_steps(), "mix_streams", forward, apart ? (bias ? 4 : 3) : 2, all);
    // Backward: two products with the matrix and the spread output each read the gradient; the sum's gradient is written and added.
    add_passes(layer.backward_steps(), "mix_streams_backward", 2, 2, all);
    add_passes(layer.backward_steps(), "gather_streams_backward", 2, 2, all);
    balance_by_kernels(layer, context);
}

bool mixed_at_once(const PolicyContext& context) {
    return context.layer.residual.hyper_connections && context.megatron().fused_streams;
}

void measure_with_product(LayerEditor& layer, const PolicyContext& /*context*/) {
    const auto of_lengths = [](const PieceStep& step) {
        return op_named(step, "stream_lengths") || op_named(step, "stream_lengths_backward");
    };
    std::erase_if(layer.forward_steps(), of_lengths);
    std::erase_if(layer.backward_steps(), of_lengths);
}

bool in_fp32(const PolicyContext& context) {
    return mixed_by_kernels(context) && context.layer.residual.hyper_connections->learned_head;
}

void keep_fp32_streams(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t copy = context.sizes.rows_outside() * context.model.stream_width() * bytes_of(Dtype::fp32);
    const LayerEditor::Tensor lengths = must(layer.find(layer.forward(), "stream lengths"), "the streams' lengths");
    const LayerEditor::Tensor by_maps = must(layer.find(layer.backward(), "residual stream gradient", 1), "the streams' gradient by maps");
    layer.add("streams in fp32", MemoryCategory::activations, copy, lengths.taken - 1, by_maps.returned);
    layer.add("fp32 gradient of streams", MemoryCategory::activations, copy, by_maps.taken - 1, by_maps.taken + 1);
    // The copy is read from the streams (1) and written (2), then read twice instead of the streams (2 more). Backward: the gradient is
    // written, added to and cast in fp32 (2, 3 more, 3).
    const std::int64_t all = stream_bytes(context);
    add_passes(layer.forward_steps(), "stream_lengths", 5, 1, all);
    add_passes(layer.backward_steps(), "stream_lengths_backward", 8, 1, all);
}

}  // namespace mgplan::simulator::streams
