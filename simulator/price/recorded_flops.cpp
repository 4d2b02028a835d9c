#include "simulator/price/recorded_flops.hpp"

#include <variant>
#include <vector>

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

double product(std::int64_t one, std::int64_t other) {
    return static_cast<double>(one) * static_cast<double>(other);
}

// FLOPs of the forward of a state along the sequence for one token; 0 where none count.

/// Nine operations for each channel and value of the state, as Mamba's authors count them (github.com/state-spaces/mamba, issue 110).
double state_flops(const Mamba& mamba) {
    return 9 * product(mamba.inner_width, mamba.state_size);
}

/// Seven, as Megatron-LM counts them (training.py, mamba_layer_flops).
double state_flops(const Mamba2& mamba2) {
    return 7 * product(mamba2.inner_width, mamba2.state_size);
}
double state_flops(const AttentionBesideMamba2& mixer) {
    return state_flops(mixer.mamba2);
}
double state_flops(const SharedBlockMamba2& mixer) {
    return state_flops(mixer.mamba2);
}

/// The convolution, and four products with a state of `key` values a channel, as Megatron-LM counts them (training.py, gdn_layer_flops).
double delta_rule_flops(std::int64_t taps, std::int64_t convolved, std::int64_t values, std::int64_t key) {
    return 2.0 * (product(taps, convolved) + 4 * product(values, key));
}
double state_flops(const GatedDeltaNet& net) {
    const std::int64_t keys = net.key_heads * net.key_dim, values = net.value_heads * net.value_dim;
    return delta_rule_flops(net.conv_taps, 2 * keys + values, values, net.key_dim);
}

/// As a delta net with a decay for each value of a key, which is no product (docs/decisions/0023).
double state_flops(const KimiDeltaAttention& attention) {
    const std::int64_t width = attention.heads * attention.head_dim;
    return delta_rule_flops(attention.conv_taps, 3 * width, width, attention.head_dim);
}

/// The two products that write the state and read it.
double state_flops(const LightningAttention& attention) {
    const auto dim = static_cast<double>(attention.head_dim);
    return 4 * static_cast<double>(attention.heads) * dim * dim;
}

template <class Kind>
double state_flops(const Kind& /*mixer*/) {
    return 0;
}

}  // namespace

double model_flops_of(const PieceStep& step, double attention_share) {
    if (step.kind != StepKind::op || step.router || step.gate) return 0;
    if (step.op.product.m > 0 || step.op.grouped.groups > 0) return step.op.flops;
    if (step.op.arithmetic.model_share > 0) return step.op.arithmetic.model_share * step.op.flops;
    return (step.op.name == "attention_backward" ? 2 : 1) * attention_share * step.op.part.causal_half_flops();
}

double model_flops_of_state(const Mixer& mixer, double rows) {
    return rows * std::visit([](const auto& kind) { return state_flops(kind); }, mixer);
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
    for (const LayerHalf& mixer : kinds.mixers) {
        const double of_state = mixer.carries_state ? 3 * model_flops_of_state(*mixer.layer.mixer, static_cast<double>(batch.sequence)) : 0;
        mixers.push_back(flops_of(trace_half(counted, mixer, one), piece_of(mixer), packed_attention(batch).share) + of_state);
    }
    for (const LayerHalf& half : kinds.feed_forwards) feed_forwards.push_back(flops_of(trace_half(counted, half, one), piece_of(half)));
    const PieceTrace trace = trace_ends(counted, one);
    const double loss = flops_of(trace, Piece::loss);
    // GEMMs before and after the layers: of residual streams (Gemma 3n)
    const double ends = flops_of(trace, Piece::embedding) + flops_of(trace, Piece::norm);
    const auto of_half = [](const std::vector<double>& halves, int half) {
        return half == LayerKindHalves::kNone ? 0.0 : halves[static_cast<std::size_t>(half)];
    };
    const auto of_layer = [&](std::size_t index) {
        const LayerKindHalves& kind = kinds.kinds[index];
        return of_half(mixers, kind.mixer) + of_half(feed_forwards, kind.feed_forward);
    };
    double flops = loss + ends;
    for (const std::uint16_t kind : kinds.of_layer) flops += of_layer(kind);
    if (model.mtp_layers > 0) {
        const double front = flops_of(trace_prediction(counted, kinds.mixer_of_prediction(), one, false), Piece::mtp_front);
        flops += static_cast<double>(model.mtp_layers) * (front + of_layer(kinds.of_prediction) + loss);
    }
    return flops * static_cast<double>(batch.global_batch);
}

}  // namespace mgplan::simulator
