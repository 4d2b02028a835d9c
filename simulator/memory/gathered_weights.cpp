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

/// True for linear layers that every tp rank holds whole: Transformer Engine's plain ones.
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

template <class Buffers>
void add_turns(const Buffers& buffers, std::vector<std::int64_t>& list) {
    for (const auto& [key, held] : buffers) {
        for (std::int64_t turn = 0; turn < std::min<std::int64_t>(2, held.second); ++turn) list.push_back(held.first);
    }
}

}  // namespace

std::int64_t weight_parts(const Parameter& parameter, const WeightShards& shards) {
    if (parameter.shape.size() != 2) return 1;
    if (named(parameter, "word_embeddings.weight") || named(parameter, "output_layer.weight")) return shards.dense;
    if (!parameter.linear_weight || is_whole_linear(parameter)) return 1;
    if (named(parameter, "latent_proj")) return shards.latent_projections ? shards.dense : 1;
    return parameter.expert ? shards.experts : shards.dense;
}

Parameter held_part(Parameter parameter, const TrainingSpec& training) {
    const std::int64_t parts = weight_parts(parameter, training.megatron.weight_shards);
    if (parts > 1) parameter.shape[0] = padded_rows(parameter, parts, training) / parts;
    return parameter;
}

model::BufferOptions over_parts(model::BufferOptions options, const WeightShards& shards) {
    options.dp = std::max<std::int64_t>(1, options.dp / shards.dense);
    options.edp = std::max<std::int64_t>(1, options.edp / shards.experts);
    return options;
}

void GatherBufferList::add(const Parameter& parameter, std::int64_t layers, Use use) {
    const std::int64_t parts = weight_parts(parameter, training_.megatron.weight_shards);
    if (parts == 1) return;
    const std::int64_t rows = padded_rows(parameter, parts, training_), columns = parameter.shape[1];
    const bool quantised = training_.fp8_parameters && parameter.linear_weight && !use.in_bf16;
    const std::int64_t sixteen_bits = rows * columns * bytes_of(training_.compute_dtype());
    std::int64_t gathered = sixteen_bits, along_rows = sixteen_bits;
    if (quantised) {
        const Fp8WeightBytes both = fp8_weight_bytes(rows, columns, training_.format(), compute_capability_);
        gathered = both.total();
        along_rows = both.rowwise + both.scales / 2;
    }
    if (use.repeated && mgplan::quantised(training_.precision)) gathered += along_rows;
    const std::int64_t element = bytes_of(training_.grad_dtype);
    const std::int64_t gradient = use.multiplied ? parameter.count() * element : 0, part = rows / parts * columns * element;
    if (parameter.expert) {
        const bool first = named(parameter, "linear_fc1");
        auto& [bytes, turns] = expert_weights_[{first, parameter.local_expert, quantised}];
        bytes = gathered;
        turns += layers;
        auto& [summed, sum_turns] = expert_gradients_[{first, parameter.local_expert}];
        summed = gradient + part;
        sum_turns += layers;
    } else {
        const Kind kind{rows, columns, quantised};
        const std::int64_t turns = use.next && last_ == kind ? 2 : 1;
        const auto at_least = [&](BytesAndTurns& held, std::int64_t bytes) {
            held = {std::max(held.first, bytes), std::max(held.second, turns)};
        };
        at_least(weights_[kind], gathered);
        at_least(summed_[{rows, columns}], part);
        std::int64_t& whole = gradients_[{rows, columns}];
        whole = std::max(whole, gradient);
        last_ = kind;
    }
}

GatherBuffers GatherBufferList::bytes() const {
    GatherBuffers sum;
    for (const std::int64_t bytes : weights_one_by_one()) sum.weights += bytes;
    for (const std::int64_t bytes : gradients_one_by_one()) sum.gradients += bytes;
    return sum;
}

std::vector<std::int64_t> GatherBufferList::weights_one_by_one() const {
    std::vector<std::int64_t> list;
    add_turns(weights_, list);
    add_turns(expert_weights_, list);  // gathered one layer of experts ahead
    return list;
}

std::vector<std::int64_t> GatherBufferList::gradients_one_by_one() const {
    std::vector<std::int64_t> list;
    for (const auto& [shape, bytes] : gradients_) list.push_back(bytes);
    add_turns(summed_, list);
    add_turns(expert_gradients_, list);  // reduced one layer later
    return list;
}

}  // namespace mgplan::simulator
