// Mixers with a state that decays: Mamba, Mamba-2 alone, in parallel with attention and over a shared block, gated linear recurrences.

#include <array>

#include <fmt/core.h>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

bool describe_mamba(const PartSizes& s, ModelSpec& fields) {
    return s["proj_bias"] == 0 && s["inner_norms"] <= 2 && fields.normalization == Normalization::rms_norm;
}

void add_mamba_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Mamba", "channels", s["inner"], division.tp);
    refuse_context_parallelism(obstacles, "Mamba", division);
}

bool describe_recurrence(const PartSizes& s, ModelSpec& fields) {
    return s["width"] % s["heads"] == 0 && fields.normalization == Normalization::rms_norm;
}

void add_recurrence_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "recurrent blocks", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "recurrent blocks", division);
}

bool describe_mamba2(const PartSizes& s, ModelSpec& /*fields*/) {
    // Megatron-core's mixer has neither biases of its projections nor a convolution without one (ssm/mamba_mixer.py).
    return s["inner"] % s["heads"] == 0 && s["heads"] % s["groups"] == 0 && s["conv_bias"] == 1 && s["proj_bias"] == 0;
}

/// cp divides whole heads, and either whole groups or each group over the same number of ranks (ssm/mamba_context_parallel.py,
/// MambaContextParallel).
void add_mamba2_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Mamba-2", "heads", s["heads"], division.tp);
    require_division(obstacles, "Mamba-2", "groups", s["groups"], division.tp);
    require_exchange(obstacles, "Mamba-2", "heads", s["heads"], division);
    const std::int64_t groups = s["groups"] / division.tp;
    const bool shared = groups > 0 && division.cp % groups == 0;
    if (!shared) require_exchange(obstacles, "Mamba-2", "groups", s["groups"], division);
}

bool describe_attention_beside_mamba(const PartSizes& s, ModelSpec& fields) {
    fields.heads = s["query_heads"];
    fields.kv_heads = s["kv_heads"];
    fields.head_dim = s["head_dim"];
    fields.qkv_bias = s["qkv_bias"] != 0;
    fields.attention_output_bias = s["output_bias"] != 0;
    return describe_mamba2(s, fields) && fields.heads % fields.kv_heads == 0;
}

void add_attention_beside_mamba_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    add_attention_obstacles(obstacles, fields, s, division);
    add_mamba2_obstacles(obstacles, fields, s, division);
}

bool describe_shared_block(const PartSizes& s, ModelSpec& fields) {
    const bool turns = s["positions"] == 2;
    return s["query_heads"] % s["kv_heads"] == 0 && fields.normalization == Normalization::rms_norm && s["positions"] <= 2 &&
           (!turns || s["head_dim"] % 2 == 0) && describe_mamba2(s, fields) && describe_activation(s, fields) &&
           fields.activation != Activation::xielu;
}

void add_shared_block_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "the shared block", "kv heads", s["kv_heads"], division.tp);
    require_division(obstacles, "the shared block", "columns", s["width"], division.tp);
    ParallelSizes whole = division;
    whole.cp = 1;
    add_mamba2_obstacles(obstacles, fields, s, whole);
    refuse_context_parallelism(obstacles, "blocks that layers share", division);
}

bool is_shared_block(const LayerPart& part) {
    return part.kind == "shared_block";
}

/// True if the block that a layer reads lies outside the layers, shared blocks first, with the sizes that the layer states.
bool finds_shared_block(const PartSizes& sizes, const ModelSpec& model) {
    const auto blocks = static_cast<std::int64_t>(model.beside_layers.size()) - 1;
    if (sizes["block"] >= blocks || !is_shared_block(model.beside_layers.front())) return false;
    const LayerPart& part = model.beside_layers[static_cast<std::size_t>(sizes["block"])];
    if (!is_shared_block(part)) return false;
    const PartSizes block = stated_sizes(part, model.hidden);
    for (const auto* same : {"query_heads", "kv_heads", "head_dim", "width"}) {
        if (sizes[same] != block[same]) return false;
    }
    // An adapter of keys is as wide as that of queries.
    const bool alike = sizes["kv_heads"] == sizes["query_heads"] && sizes["query_heads"] * sizes["head_dim"] == 2 * model.hidden;
    return sizes["adapts_attention"] == 0 || alike;
}

bool shared_block_stands(const LayerPart& part, const ModelSpec& model) {
    return !model.compositions.empty() && part_size(part, "bias") == 0;
}

/// Nine operations for each channel and value of the state, as Mamba's authors count them (github.com/state-spaces/mamba, issue 110).
double mamba_state_flops(const PartSizes& s) {
    return 9 * static_cast<double>(s["inner"]) * static_cast<double>(s["state"]);
}

/// Seven, as Megatron-LM counts them (training.py, mamba_layer_flops).
double mamba2_state_flops(const PartSizes& s) {
    return 7 * static_cast<double>(s["inner"]) * static_cast<double>(s["state"]);
}

constexpr std::array kComputedStateSpaces{ComputedPart{"mamba", describe_mamba, add_mamba_obstacles, {.state_flops = mamba_state_flops}},
                                          ComputedPart{"gated_linear_recurrence", describe_recurrence, add_recurrence_obstacles, {}},
                                          ComputedPart{"mamba2",
                                                       describe_mamba2,
                                                       add_mamba2_obstacles,
                                                       {.state_flops = mamba2_state_flops, .megatron_kernels = StateKernels::chunked_scan}},
                                          ComputedPart{"attention_beside_mamba2",
                                                       describe_attention_beside_mamba,
                                                       add_attention_beside_mamba_obstacles,
                                                       {.attends = Attends::beside_a_state, .state_flops = mamba2_state_flops}},
                                          ComputedPart{"shared_block_mamba2",
                                                       describe_shared_block,
                                                       add_shared_block_obstacles,
                                                       {.state_flops = mamba2_state_flops, .finds_beside = finds_shared_block}}};

constexpr std::array kBesideStateSpaces{ComputedBeside{"shared_block", shared_block_stands}};

}  // namespace

std::span<const ComputedPart> computed_state_spaces() {
    return kComputedStateSpaces;
}

std::span<const ComputedBeside> beside_state_spaces() {
    return kBesideStateSpaces;
}

}  // namespace mgplan
