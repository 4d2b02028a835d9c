#include "simulator/memory/gathered_weights.hpp"

#include <algorithm>
#include <string_view>

#include "plan/text/rounding.hpp"
#include "simulator/memory/fp8_weights.hpp"

namespace mgplan::simulator {
namespace {

bool named(const Parameter& parameter, std::string_view part) {
    return parameter.name.find(part) != std::string::npos;
}

/// Linear layers that are whole on every tp rank: Transformer Engine's plain ones.
bool is_whole_linear(const Parameter& parameter) {
    for (const std::string_view whole : {"linear_q_down_proj", "linear_kv_down_proj", "linear_wq_b", "linear_wk", "linear_weights_proj"}) {
        if (named(parameter, whole)) return true;
    }
    return false;
}

std::int64_t padded_rows(const Parameter& parameter, std::int64_t parts, const TrainingSpec& training) {
    const bool mxfp8 = training.precision == Precision::fp8 && training.megatron.fp8_recipe == Fp8Recipe::mxfp8;
    return round_up(parameter.shape[0], parts * (mxfp8 ? 32 : 16));
}

}  // namespace

std::int64_t weight_parts(const Parameter& parameter, const WeightShards& shards) {
    if (parameter.shape.size() != 2) return 1;
    if (named(parameter, "word_embeddings.weight") || named(parameter, "output_layer.weight")) return shards.dense;
    if (!is_linear_weight(parameter) || is_whole_linear(parameter)) return 1;
    if (named(parameter, "latent_proj")) return shards.latent_projections ? shards.dense : 1;
    return parameter.expert ? shards.experts : shards.dense;
}

Parameter held_part(Parameter parameter, const TrainingSpec& training) {
    const std::int64_t parts = weight_parts(parameter, training.megatron.weight_shards);
    if (parts > 1) parameter.shape[0] = padded_rows(parameter, parts, training) / parts;
    return parameter;
}

void GatherBufferList::add(const Parameter& parameter, std::int64_t layers, Use use) {
    const std::int64_t parts = weight_parts(parameter, training_.megatron.weight_shards);
    if (parts == 1) return;
    const std::int64_t rows = padded_rows(parameter, parts, training_), columns = parameter.shape[1];
    const bool quantised = training_.fp8_parameters && is_linear_weight(parameter) && !use.in_bf16;
    const std::int64_t sixteen_bits = rows * columns * bytes_of(training_.compute_dtype());
    std::int64_t gathered = sixteen_bits, along_rows = sixteen_bits;
    if (quantised) {
        const Fp8WeightBytes both = fp8_weight_bytes(rows, columns, training_.format(), compute_capability_);
        gathered = both.total();
        along_rows = both.rowwise + both.scales / 2;
    }
    if (use.repeated && mgplan::quantised(training_.precision)) gathered += along_rows;
    // The product's own result, whole, and the part that the reduction leaves.
    const std::int64_t gradient = ((use.multiplied ? parameter.count() : 0) + rows / parts * columns) * bytes_of(training_.grad_dtype);
    if (parameter.expert) {
        const bool first = named(parameter, "linear_fc1");
        auto& [bytes, turns] = expert_weights_[{first, parameter.local_expert, quantised}];
        bytes = gathered;
        turns += layers;
        auto& [summed, sum_turns] = expert_gradients_[{first, parameter.local_expert}];
        summed = gradient;
        sum_turns += layers;
    } else {
        std::int64_t& held = weights_[{rows, columns, quantised}];
        held = std::max(held, gathered);
        std::int64_t& summed = gradients_[{rows, columns}];
        summed = std::max(summed, gradient);
    }
}

GatherBuffers GatherBufferList::bytes() const {
    GatherBuffers sum;
    for (const auto& [shape, bytes] : weights_) sum.weights += bytes;
    for (const auto& [shape, bytes] : gradients_) sum.gradients += bytes;
    // Gathered a layer of experts ahead, and reduced a layer behind.
    for (const auto& [role, held] : expert_weights_) sum.weights += held.first * std::min<std::int64_t>(2, held.second);
    for (const auto& [role, held] : expert_gradients_) sum.gradients += held.first * std::min<std::int64_t>(2, held.second);
    return sum;
}

}  // namespace mgplan::simulator
