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

void GatherBufferList::add(const Parameter& parameter, std::int64_t layers, bool multiplied) {
    const std::int64_t parts = weight_parts(parameter, training_.megatron.weight_shards);
    if (parts == 1) return;
    const std::int64_t rows = padded_rows(parameter, parts, training_), columns = parameter.shape[1];
    GatherBuffers one;
    if (training_.fp8_parameters && is_linear_weight(parameter))
        one.weights = fp8_weight_bytes(rows, columns, training_.format(), compute_capability_).total();
    else
        one.weights = rows * columns * bytes_of(training_.compute_dtype());
    if (recomputes_) one.weights *= 2;
    // The product's own result, whole, and the part that the reduction leaves.
    one.gradients = ((multiplied ? parameter.count() : 0) + rows / parts * columns) * bytes_of(training_.grad_dtype);
    if (parameter.expert) {
        auto& [bytes, turns] = experts_[{named(parameter, "linear_fc1"), parameter.local_expert}];
        bytes = one;
        turns += layers;
    } else {
        dense_[{rows, columns}] = one;
    }
}

GatherBuffers GatherBufferList::bytes() const {
    GatherBuffers sum;
    for (const auto& [shape, bytes] : dense_) sum += bytes;
    for (const auto& [role, held] : experts_) {
        const auto& [bytes, layers] = held;
        // Gathered a block of experts ahead. The pool of whole gradients gives back what the layer before took.
        sum.weights += bytes.weights * std::min<std::int64_t>(2, layers);
        sum.gradients += bytes.gradients;
    }
    return sum;
}

}  // namespace mgplan::simulator
