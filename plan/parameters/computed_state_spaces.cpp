// Mixers with a state that decays: Mamba, Mamba-2 alone, beside attention and over a shared block, gated linear recurrences.

#include <array>
#include <cmath>

#include <fmt/core.h>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

bool describe_mamba(const PartSizes& s, ModelSpec& fields) {
    return s["proj_bias"] == 0 && s["inner_norms"] <= 2 && fields.normalization == Normalization::rms_norm;
}

/// modeling_mamba.py and modeling_jamba.py: channels x and z of the projection, those of the convolution, of the scan and of what steps
/// come from, divided over tp; norms of steps, B and C whole on every rank, which sees gradients from its own channels.
void add_mamba(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, inner = s["inner"] / division.tp, state = s["state"], rank = s["dt_rank"];
    list.add_sharded("mixer.dt_bias", {inner}, 0).initial = InitialValues::step_bias;
    list.add_sharded("mixer.A_log", {inner, state}, 0).initial = InitialValues::log_of_decay;
    list.add_sharded("mixer.D", {inner}, 0).initial = InitialValues::ones;
    const auto by_taps = [&](Parameter& parameter) {
        parameter.initial = InitialValues::by_taps;
        parameter.initial_bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    };
    by_taps(list.add_sharded("mixer.conv1d_weight", {inner, 1, s["conv"]}, 0));
    if (s["conv_bias"] != 0) by_taps(list.add_sharded("mixer.conv1d_bias", {inner}, 0));
    list.add_norm(fields, "mixer.in_proj.layer_norm_weight", "mixer.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("mixer.in_proj.weight", {inner, inner}, {hidden});
    list.add_sharded("mixer.x_proj.weight", {rank + 2 * state, inner}, 1);
    list.add_sharded("mixer.dt_proj.weight", {inner, rank}, 0);
    if (s["inner_norms"] == 1) {
        list.add("mixer.dt_norm.weight", {rank}, PartialGradient::always);
        list.add("mixer.B_norm.weight", {state}, PartialGradient::always);
        list.add("mixer.C_norm.weight", {state}, PartialGradient::always);
    }
    list.add_sharded("mixer.out_proj.weight", {hidden, inner}, 1);
}

void add_mamba_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Mamba", "channels", s["inner"], division.tp);
    refuse_context_parallelism(obstacles, "Mamba", division);
}

bool describe_recurrence(const PartSizes& s, ModelSpec& fields) {
    return s["width"] % s["heads"] == 0 && fields.normalization == Normalization::rms_norm;
}

/// modeling_recurrent_gemma.py, RecurrentGemmaRecurrentBlock and RecurrentGemmaRglru: blocks y and x of the projection, the channels of the
/// convolution and the recurrence, and the heads that its gates mix, divided over tp.
void add_recurrence(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, width = s["width"] / division.tp, heads = s["heads"] / division.tp,
                       block = s["width"] / s["heads"];
    const auto by_taps = [&](Parameter& parameter) {
        parameter.initial = InitialValues::by_taps;
        parameter.initial_bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    };
    list.add_sharded("mixer.decay", {width}, 0).initial = InitialValues::ones;
    by_taps(list.add_sharded("mixer.conv1d_weight", {width, 1, s["conv"]}, 0));
    by_taps(list.add_sharded("mixer.conv1d_bias", {width}, 0));
    for (const std::string_view gate : {"input", "decay"}) {
        list.add_sharded(fmt::format("mixer.{}_gate.weight", gate), {heads, block, block}, 0);
        list.add_sharded(fmt::format("mixer.{}_gate.bias", gate), {width}, 0);
    }
    list.add_norm(fields, "mixer.in_proj.layer_norm_weight", "mixer.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("mixer.in_proj.weight", {width, width}, {hidden});
    list.add_in_blocks("mixer.in_proj.bias", {width, width}, {});
    list.add_sharded("mixer.out_proj.weight", {hidden, width}, 1);
    list.add("mixer.out_proj.bias", {hidden}, PartialGradient::sequence_parallel);
}

void add_recurrence_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "recurrent blocks", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "recurrent blocks", division);
}

bool describe_mamba2(const PartSizes& s, ModelSpec& /*fields*/) {
    // Megatron-core's mixer has neither biases of its projections nor a convolution without one (ssm/mamba_mixer.py).
    return s["inner"] % s["heads"] == 0 && s["heads"] % s["groups"] == 0 && s["conv_bias"] == 1 && s["proj_bias"] == 0;
}

/// ssm/mamba_mixer.py: blocks z, x, B, C, dt of the projection, x, B, C of the convolution, each divided over tp. `normed`: with a norm of
/// its own in front.
void add_state_space(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division, bool normed) {
    const std::int64_t tp = division.tp, hidden = fields.hidden, inner = s["inner"] / tp, heads = s["heads"] / tp;
    const std::int64_t maps = s["groups"] / tp * s["state"];
    list.add_sharded("mixer.dt_bias", {heads}, 0).initial = InitialValues::step_bias;
    list.add_sharded("mixer.A_log", {heads}, 0).initial = InitialValues::log_of_decay;
    list.add_sharded("mixer.D", {heads}, 0).initial = InitialValues::ones;
    const double bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    Parameter& conv = list.add_in_blocks("mixer.conv1d_weight", {inner, maps, maps}, {1, s["conv"]});
    conv.initial = InitialValues::by_taps;
    conv.initial_bound = bound;
    Parameter& conv_bias = list.add_in_blocks("mixer.conv1d_bias", {inner, maps, maps}, {});
    conv_bias.initial = InitialValues::by_taps;
    conv_bias.initial_bound = bound;
    if (normed) list.add_norm(fields, "mixer.in_proj.layer_norm_weight", "mixer.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("mixer.in_proj.weight", {inner, inner, maps, maps, heads}, {hidden});
    if (s["norm"] != 0) list.add_sharded("mixer.norm.weight", {inner}, 0);
    list.add_sharded("mixer.out_proj.weight", {hidden, inner}, 1);
}

void add_mamba2(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    add_state_space(list, fields, s, division, true);
}

/// Over cp whole heads; of groups, whole ones or as many ranks for each (ssm/mamba_context_parallel.py, MambaContextParallel).
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

void add_attention_beside_mamba(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    add_attention(list, fields, division.tp);  // with the norm of both
    add_state_space(list, fields, s, division, false);
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

/// What the layer has of its own (modeling_zamba2.py, Zamba2HybridLayer): the map is whole on every rank, adapters are whole down and
/// divided over tp up, as is what they are added to.
void add_shared_block_layer(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, tp = division.tp, rank = s["rank"], wide = 2 * hidden;
    list.add("shared_map.weight", {hidden, hidden}, PartialGradient::sequence_parallel);
    if (rank > 0) {
        list.add("adapter_down.weight", {rank, hidden}, PartialGradient::sequence_parallel);
        list.add_sharded("adapter_up.weight", {2 * s["width"] / tp, rank}, 0, 2);
    }
    for (const std::string_view what : {"q", "k", "v"}) {
        if (rank == 0 || s["adapts_attention"] == 0) continue;
        list.add(fmt::format("{}_adapter_down.weight", what), {rank, wide}, PartialGradient::sequence_parallel);
        list.add_sharded(fmt::format("{}_adapter_up.weight", what), {wide / tp, rank}, 0);
    }
    add_mamba2(list, fields, s, division);
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

/// Whether the block that a layer reads stands beside the layers, shared blocks first, with the sizes that the layer says.
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

/// The block itself: heads and columns of the MLP divided over tp.
void add_shared_block(std::vector<Parameter>& parameters, const ModelSpec& model, const PartSizes& s, std::size_t place, std::int64_t tp) {
    const std::int64_t hidden = model.hidden, width = s["width"] / tp, dim = s["head_dim"];
    const std::int64_t queries = s["query_heads"] / tp * dim, keys = s["kv_heads"] / tp * dim;
    ParameterList list(parameters, fmt::format("shared_blocks.{}.", place));
    list.add_norm(model, "input_layernorm.weight", "input_layernorm.bias", 2 * hidden);
    list.add_sharded("linear_proj.weight", {hidden, queries}, 1);
    list.add_sharded("linear_qkv.weight", {queries + 2 * keys, 2 * hidden}, 0);
    list.add_norm(model, "pre_mlp_layernorm.weight", "pre_mlp_layernorm.bias", hidden);
    list.add_sharded("linear_fc1.weight", {2 * width, hidden}, 0, 2);
    list.add_sharded("linear_fc2.weight", {hidden, width}, 1);
}

/// Nine operations for each channel and value of the state, as Mamba's authors count them (github.com/state-spaces/mamba, issue 110).
double mamba_state_flops(const PartSizes& s) {
    return 9 * static_cast<double>(s["inner"]) * static_cast<double>(s["state"]);
}

/// Seven, as Megatron-LM counts them (training.py, mamba_layer_flops).
double mamba2_state_flops(const PartSizes& s) {
    return 7 * static_cast<double>(s["inner"]) * static_cast<double>(s["state"]);
}

constexpr std::array kComputedStateSpaces{
    ComputedPart{"mamba", describe_mamba, add_mamba, add_mamba_obstacles, {.state_flops = mamba_state_flops}},
    ComputedPart{"gated_linear_recurrence", describe_recurrence, add_recurrence, add_recurrence_obstacles, {}},
    ComputedPart{"mamba2",
                 describe_mamba2,
                 add_mamba2,
                 add_mamba2_obstacles,
                 {.state_flops = mamba2_state_flops, .megatron_kernels = StateKernels::chunked_scan}},
    ComputedPart{"attention_beside_mamba2",
                 describe_attention_beside_mamba,
                 add_attention_beside_mamba,
                 add_attention_beside_mamba_obstacles,
                 {.attends = Attends::beside_a_state, .state_flops = mamba2_state_flops}},
    ComputedPart{"shared_block_mamba2",
                 describe_shared_block,
                 add_shared_block_layer,
                 add_shared_block_obstacles,
                 {.state_flops = mamba2_state_flops, .finds_beside = finds_shared_block}}};

constexpr std::array kBesideStateSpaces{ComputedBeside{"shared_block", shared_block_stands, add_shared_block}};

}  // namespace

std::span<const ComputedPart> computed_state_spaces() {
    return kComputedStateSpaces;
}

std::span<const ComputedBeside> beside_state_spaces() {
    return kBesideStateSpaces;
}

}  // namespace mgplan
