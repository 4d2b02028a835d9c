#include "simulator/price/recorded_flops.hpp"

#include <algorithm>

#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {
namespace {

/// Of a piece's forward and backward for one sequence; nothing is computed again in the trace.
double flops_of(const PieceTrace& trace, Piece piece) {
    double flops = 0;
    for (const bool backward : {false, true}) {
        for (const PieceStep& step : trace.range(piece, backward).steps) flops += model_flops_of(step);
    }
    return flops;
}

}  // namespace

double model_flops_of(const PieceStep& step) {
    if (step.kind != StepKind::op || step.router || step.gate) return 0;
    if (step.op.product.m > 0 || step.op.grouped.groups > 0) return step.op.flops;
    return (step.op.name == "attention_backward" ? 2 : 1) * step.op.part.causal_half_flops();
}

double model_flops(const ModelSpec& model, const BatchSpec& batch) {
    // One sequence on one rank; every token's experts count, within capacity or not.
    PieceSizes one;
    one.sequence = batch.sequence;
    one.keep_steps = true;
    ModelSpec counted = model;
    if (counted.moe) {
        counted.moe->capacity_factor = 0;
        counted.moe->pad_to_capacity = false;
    }
    const PieceTrace dense = trace_dense_pieces(counted, one);
    const double attention = flops_of(dense, Piece::attention), mlp = flops_of(dense, Piece::dense), loss = flops_of(dense, Piece::loss);
    const bool mixes = std::find(model.moe_layers.begin(), model.moe_layers.end(), true) != model.moe_layers.end();
    const double mixture = mixes ? flops_of(trace_mixture(counted, one), Piece::mixture) : 0;
    double flops = loss;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) flops += attention + (model.is_moe_layer(layer) ? mixture : mlp);
    if (model.mtp_layers > 0) {
        const double last = model.layers > 0 && model.is_moe_layer(model.layers - 1) ? mixture : mlp;
        const double front = flops_of(trace_prediction(counted, one, false), Piece::mtp_front);
        flops += static_cast<double>(model.mtp_layers) * (front + attention + last + loss);
    }
    return flops * static_cast<double>(batch.global_batch);
}

}  // namespace mgplan::simulator
