#include "simulator/price/recorded_flops.hpp"

#include <vector>

#include "plan/parameters/computed_parts.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/packed_attention.hpp"

namespace mgplan::simulator {
namespace {

/// FLOPs of a piece's forward and backward for one sequence; the trace contains no recompute.
double flops_of(const PieceTrace& trace, Piece piece, double attention_share = 1) {
    double flops = 0;
    for (const bool backward : {false, true}) {
        for (const PieceStep& step : trace.range(piece, backward).steps) flops += model_flops_of(step, attention_share);
    }
    return flops;
}

}  // namespace

double model_flops_of(const PieceStep& step, double attention_share) {
    if (step.kind != StepKind::op || step.router || step.gate) return 0;
    if (step.op.product.m > 0 || step.op.grouped.groups > 0) return step.op.flops;
    if (step.op.arithmetic.model_share > 0) return step.op.arithmetic.model_share * step.op.flops;
    return (step.op.name == "attention_backward" ? 2 : 1) * attention_share * step.op.part.causal_half_flops();
}

double model_flops_of_state(const LayerPart& mixer, double rows) {
    const ComputedPart* const computed = find_computed_part(mixer);
    if (computed == nullptr || computed->traits.state_flops == nullptr) return 0;
    return rows * computed->traits.state_flops(stated_sizes(mixer, 0));  // no width of a mixer's state equals the model's
}

double model_flops(const ModelSpec& model, const BatchSpec& batch) {
    // One sequence on one rank; all experts of a token count, within capacity or not.
    PieceSizes one;
    one.sequence = batch.sequence;
    one.keep_steps = true;
    ModelSpec counted = model;
    if (counted.moe) {
        counted.moe->capacity_factor = 0;
        counted.moe->pad_to_capacity = false;
    }
    const LayerKinds kinds = layer_kinds(counted);
    std::vector<double> mixers, feed_forwards;
    double loss = 0, ends = 0;  // GEMMs before and after the layers: of residual streams (Gemma 3n)
    for (std::size_t i = 0; i < kinds.plain_layers.size(); ++i) {
        const PieceTrace trace = trace_dense_pieces(kinds.plain_layers[i], one);
        if (i < kinds.mixers.size()) {
            const double of_state =
                kinds.mixers[i].carries_state ? 3 * model_flops_of_state(kinds.mixers[i].part, static_cast<double>(batch.sequence)) : 0;
            mixers.push_back(flops_of(trace, piece_of_mixer(kinds.mixers[i]), packed_attention(batch).share) + of_state);
        }
        if (trace.holds(Piece::dense)) feed_forwards.push_back(flops_of(trace, Piece::dense));
        if (i > 0) continue;
        loss = flops_of(trace, Piece::loss);
        ends = flops_of(trace, Piece::embedding) + flops_of(trace, Piece::norm);
    }
    const double mixture =
        kinds.mixture() == LayerKindHalves::kNone ? 0 : flops_of(trace_mixture(kinds.mixture_layer, one), Piece::mixture);
    const auto of_half = [](const std::vector<double>& halves, int half) {
        return half == LayerKindHalves::kNone ? 0.0 : halves[static_cast<std::size_t>(half)];
    };
    const auto of_layer = [&](std::size_t index) {
        const LayerKindHalves& kind = kinds.kinds[index];
        return of_half(mixers, kind.mixer) + (kind.mixture ? mixture : of_half(feed_forwards, kind.feed_forward));
    };
    double flops = loss + ends;
    for (const std::uint16_t kind : kinds.of_layer) flops += of_layer(kind);
    if (model.mtp_layers > 0) {
        const double front = flops_of(trace_prediction(counted, one, false), Piece::mtp_front);
        flops += static_cast<double>(model.mtp_layers) * (front + of_layer(kinds.of_prediction) + loss);
    }
    return flops * static_cast<double>(batch.global_batch);
}

}  // namespace mgplan::simulator
