#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "plan/model/layer_parts.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

/// What is known of a kind of part beyond its count.
struct ComputedPart {
    std::string_view kind;
    bool mixes_tokens;
    /// Sets the fields that the part states; false where something of it is not computed.
    bool (*describe)(const PartSizes& sizes, ModelSpec& fields);
    void (*add_parameters)(ParameterList& list, const ModelSpec& fields, const PartSizes& sizes, const ParallelSizes& division);
    void (*add_obstacles)(Words& obstacles, const ModelSpec& fields, const PartSizes& sizes, const ParallelSizes& division);
};

/// False where the part does not say it.
bool describe_activation(const PartSizes& s, ModelSpec& fields) {
    const std::int64_t stated = s["activation"];
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    fields.activation = static_cast<Activation>(stated - 1);
    return true;
}

bool describe_attention(const PartSizes& s, ModelSpec& fields) {
    for (const auto* unknown : {"v_head_dim", "in", "out", "qk_norm_bias", "v_norm", "sinks", "shares_kv", "key_is_value"}) {
        if (s[unknown] != 0) return false;
    }
    if (s["output_gate"] > 1 || s["qk_norm"] == 2 || s["qk_norm"] > 3 || s["positions"] < 1 || s["positions"] > 2) return false;
    if (s["positions"] == 1) fields.position = PositionEmbedding::none;
    fields.heads = s["heads"];
    fields.kv_heads = s["kv_heads"];
    fields.head_dim = s["head_dim"];
    fields.qkv_bias = s["qkv_bias"] != 0;
    fields.attention_output_bias = s["output_bias"] != 0;
    fields.attention_output_gate = s["output_gate"] == 1;
    fields.qk_norm = s["qk_norm"] != 0;
    fields.qk_norm_full_width = s["qk_norm"] == 3;
    return fields.heads % fields.kv_heads == 0;
}

/// Latent attention's sizes stand in MlaSpec too, beside what the part has no word for; both must agree.
bool describe_latent_attention(const PartSizes& s, ModelSpec& fields) {
    if (!fields.mla || s["down_bias"] != 0 || s["output_bias"] != 0 || s["latent_norms"] == 0) return false;
    const MlaSpec& mla = *fields.mla;
    fields.heads = fields.kv_heads = s["heads"];
    fields.qk_norm = true;
    if (fields.position == PositionEmbedding::none) fields.rotary_fraction = 0;  // else it turns its part of the keys whatever else does
    return mla.q_lora_rank == s["q_lora_rank"] && mla.kv_lora_rank == s["kv_lora_rank"] && mla.qk_nope_head_dim == s["qk_nope"] &&
           mla.qk_rope_head_dim == s["qk_rope"] && mla.v_head_dim == s["v_head_dim"];
}

void add_latent_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    if (fields.heads % division.tp != 0)
        obstacles.push_back(fmt::format("tp = {} over {} heads of latent attention", division.tp, fields.heads));
}

void add_attention_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    if (fields.heads % division.tp != 0 || !packed_heads_divide(fields, division.tp))
        obstacles.push_back(fmt::format("tp = {} over {} heads with {} kv heads", division.tp, fields.heads, fields.kv_heads));
    else if (fields.qk_norm_full_width && division.tp > fields.kv_heads)
        obstacles.push_back(fmt::format("QK-norm over the whole width with tp = {} above {} kv heads", division.tp, fields.kv_heads));
    else if (fields.attention_output_gate && division.tp > fields.kv_heads)
        obstacles.push_back(fmt::format("a gate of attention's output with tp = {} above {} kv heads", division.tp, fields.kv_heads));
}

/// Sizes that a rank holds of a layer with a state along the sequence; each must divide.
void require_division(Words& obstacles, std::string_view layer, std::string_view what, std::int64_t count, std::int64_t tp) {
    if (count % tp != 0) obstacles.push_back(fmt::format("tp = {} over {} {} of {}, which it does not divide", tp, count, what, layer));
}

void refuse_context_parallelism(Words& obstacles, std::string_view layer, const ParallelSizes& division) {
    if (division.cp > 1) obstacles.push_back(fmt::format("context parallelism over {} (cp = {})", layer, division.cp));
}

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

void add_mamba2_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Mamba-2", "heads", s["heads"], division.tp);
    require_division(obstacles, "Mamba-2", "groups", s["groups"], division.tp);
    refuse_context_parallelism(obstacles, "Mamba-2", division);
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
    add_mamba2_obstacles(obstacles, fields, s, division);
}

bool describe_gemma_attention(const PartSizes& s, ModelSpec& fields) {
    return s["heads"] % s["kv_heads"] == 0 && s["head_dim"] % 2 == 0 && fields.normalization == Normalization::rms_norm &&
           fields.position == PositionEmbedding::rope && (s["input"] == 0) == (s["input_rows"] == 0);
}

/// modeling_gemma4.py, Gemma4TextAttention: queries, keys and values divided over tp by heads, their norms whole on every rank, which sees
/// its own heads; a layer's own table of words divided by words, the rest of its inputs whole.
void add_gemma_attention(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, tp = division.tp, width = s["head_dim"];
    const std::int64_t queries = s["heads"] / tp * width, keys = s["kv_heads"] / tp * width;
    list.add_sharded("self_attention.linear_proj.weight", {hidden, queries}, 1);
    list.add_norm(fields, "self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    std::vector<std::int64_t> blocks{queries};
    if (s["shares_kv"] == 0) blocks.resize(s["key_is_value"] != 0 ? 2 : 3, keys);
    list.add_in_blocks("self_attention.linear_qkv.weight", blocks, {hidden});
    list.add("self_attention.q_layernorm.weight", {width}, PartialGradient::always);
    if (s["shares_kv"] == 0) list.add("self_attention.k_layernorm.weight", {width}, PartialGradient::always);
    const std::int64_t input = s["input"];
    if (input == 0) return;
    list.add_sharded("layer_input.words.weight", {s["input_rows"] / tp, input}, 0);
    list.add("layer_input.projection.weight", {input, hidden}, PartialGradient::sequence_parallel);
    list.add("layer_input.gate.weight", {input, hidden}, PartialGradient::sequence_parallel);
    list.add("layer_input.back.weight", {hidden, input}, PartialGradient::sequence_parallel);
    list.add_norm(fields, "layer_input.norm.weight", "layer_input.norm.bias", hidden);
}

void add_gemma_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "the attention of Gemma 4", "kv heads", s["kv_heads"], division.tp);
    if (s["input"] > 0) require_division(obstacles, "the inputs of layers", "words", s["input_rows"], division.tp);
    refuse_context_parallelism(obstacles, "the attention of Gemma 4", division);
}

bool describe_delta_net(const PartSizes& s, ModelSpec& fields) {
    return s["value_heads"] % s["key_heads"] == 0 && fields.normalization == Normalization::rms_norm;
}

/// ssm/gated_delta_net/: blocks q, k, v, z, beta, alpha of the projection, q, k, v of the convolution, each divided over tp; the norm of
/// a head's values is whole on every rank, which sees its own heads.
void add_delta_net(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t tp = division.tp, hidden = fields.hidden, keys = s["key_heads"] / tp * s["key_dim"];
    const std::int64_t heads = s["value_heads"] / tp, values = heads * s["value_dim"];
    list.add_sharded("self_attention.dt_bias", {heads}, 0).initial = InitialValues::ones;
    list.add_sharded("self_attention.A_log", {heads}, 0).initial = InitialValues::log_of_decay;
    list.add_norm(fields, "self_attention.in_proj.layer_norm_weight", "self_attention.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("self_attention.in_proj.weight", {keys, keys, values, values, heads, heads}, {hidden});
    Parameter& conv = list.add_in_blocks("self_attention.conv1d.weight", {keys, keys, values}, {1, s["conv"]});
    conv.initial = InitialValues::by_taps;
    conv.initial_bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    list.add("self_attention.out_norm.weight", {s["value_dim"]}, PartialGradient::always);
    list.add_sharded("self_attention.out_proj.weight", {hidden, values}, 1);
}

void add_delta_net_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "gated delta nets", "key heads", s["key_heads"], division.tp);
    require_division(obstacles, "gated delta nets", "value heads", s["value_heads"], division.tp);
    refuse_context_parallelism(obstacles, "gated delta nets", division);
}

bool describe_kimi_delta(const PartSizes& s, ModelSpec& fields) {
    return s["gate_bias"] == 0 && fields.normalization == Normalization::rms_norm;
}

/// modeling_kimi_linear.py, KimiLinearDeltaAttention: blocks q, k, v, beta of the projection, q, k, v of the convolution, and what leads
/// from the small projections to the heads divided over tp; these themselves and the norm of a head's values are whole on every rank.
void add_kimi_delta(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t tp = division.tp, hidden = fields.hidden, heads = s["heads"] / tp, rank = s["head_dim"], width = heads * rank;
    list.add_sharded("self_attention.dt_bias", {width}, 0).initial = InitialValues::ones;
    list.add_sharded("self_attention.A_log", {heads}, 0).initial = InitialValues::log_of_decay;
    list.add_norm(fields, "self_attention.in_proj.layer_norm_weight", "self_attention.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("self_attention.in_proj.weight", {width, width, width, heads}, {hidden});
    Parameter& conv = list.add_in_blocks("self_attention.conv1d.weight", {width, width, width}, {1, s["conv"]});
    conv.initial = InitialValues::by_taps;
    conv.initial_bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    for (const std::string_view what : {"decay", "gate"}) {
        list.add(fmt::format("self_attention.{}_down.weight", what), {rank, hidden}, PartialGradient::sequence_parallel);
        list.add_sharded(fmt::format("self_attention.{}_up.weight", what), {width, rank}, 0);
    }
    list.add("self_attention.out_norm.weight", {rank}, PartialGradient::always);
    list.add_sharded("self_attention.out_proj.weight", {hidden, width}, 1);
}

void add_kimi_delta_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Kimi delta attention", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "Kimi delta attention", division);
}

/// Its own factors of the residual path stand where layers look for those of attention.
bool describe_lightning(const PartSizes& /*sizes*/, ModelSpec& fields) {
    if (fields.normed_residual) fields.normed_residual->attention = fields.normed_residual->state;
    return fields.normalization == Normalization::rms_norm;
}

/// modeling_minimax.py, MiniMaxLightningAttention: blocks v, k, q and the output's gate of the projection, and the norm over all heads,
/// each divided over tp.
void add_lightning(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, width = s["heads"] / division.tp * s["head_dim"];
    list.add_norm(fields, "self_attention.in_proj.layer_norm_weight", "self_attention.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("self_attention.in_proj.weight", {width, width, width, width}, {hidden});
    list.add_sharded_norm(fields, "self_attention.out_norm.weight", "self_attention.out_norm.bias", width);
    list.add_sharded("self_attention.out_proj.weight", {hidden, width}, 1);
}

void add_lightning_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "lightning attention", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "lightning attention", division);
}

bool describe_short_convolution(const PartSizes& s, ModelSpec& /*fields*/) {
    return s["bias"] == 0;
}

/// modeling_lfm2.py, Lfm2ShortConv: blocks B, C, x of the projection, and the channels of the convolution, each divided over tp.
void add_short_convolution(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t hidden = fields.hidden, channels = hidden / division.tp;
    list.add_norm(fields, "mixer.in_proj.layer_norm_weight", "mixer.in_proj.layer_norm_bias", hidden);
    list.add_in_blocks("mixer.in_proj.weight", {channels, channels, channels}, {hidden});
    Parameter& conv = list.add_sharded("mixer.conv.weight", {channels, 1, s["conv"]}, 0);
    conv.initial = InitialValues::by_taps;
    conv.initial_bound = 1 / std::sqrt(static_cast<double>(s["conv"]));
    list.add_sharded("mixer.out_proj.weight", {hidden, channels}, 1);
}

void add_short_convolution_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    require_division(obstacles, "short convolutions", "channels", fields.hidden, division.tp);
    refuse_context_parallelism(obstacles, "short convolutions", division);
}

bool describe_mlp(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    // A bias of the second product would miss the MLP's multiplier, which stands in front of it; and without a gate there is none to scale.
    const BranchMultipliers& by = fields.branch_multipliers;
    if ((by.mlp_output != 1 && fields.mlp_bias) || (by.mlp_gate != 1 && !fields.gated_mlp)) return false;
    // xIELU has no gate.
    return s["in"] == 0 && describe_activation(s, fields) && !(fields.gated_mlp && fields.activation == Activation::xielu);
}

void add_mlp_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    require_division(obstacles, "MLPs", "columns", fields.ffn, division.tp);
}

/// A mixture is described by the part and, where the part has no word for it (scores, balancing), by MoeSpec; both must agree.
bool describe_experts(const PartSizes& s, ModelSpec& fields) {
    if (!fields.moe || s["in"] != fields.moe->latent || s["router"] != 1 || !describe_activation(s, fields)) return false;
    if (fields.activation == Activation::xielu) return false;  // whose values belong to one MLP
    if (s["zero_experts"] != 0 || s["idle_first"] != 0 || s["idle"] != 0) return false;
    const MoeSpec& moe = *fields.moe;
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    return moe.experts == s["experts"] && moe.top_k == s["top_k"] && moe.expert_ffn == s["width"] &&
           moe.router_bias == (s["router_bias"] != 0);
}

constexpr std::array kComputedParts{
    ComputedPart{"attention", true, describe_attention,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_attention(list, fields, division.tp);
                 },
                 add_attention_obstacles},
    ComputedPart{"mamba", true, describe_mamba, add_mamba, add_mamba_obstacles},
    ComputedPart{"gated_linear_recurrence", true, describe_recurrence, add_recurrence, add_recurrence_obstacles},
    ComputedPart{"mamba2", true, describe_mamba2, add_mamba2, add_mamba2_obstacles},
    ComputedPart{"attention_beside_mamba2", true, describe_attention_beside_mamba, add_attention_beside_mamba,
                 add_attention_beside_mamba_obstacles},
    ComputedPart{"shared_block_mamba2", true, describe_shared_block, add_shared_block_layer, add_shared_block_obstacles},
    ComputedPart{"gemma_attention", true, describe_gemma_attention, add_gemma_attention, add_gemma_obstacles},
    ComputedPart{"latent_attention", true, describe_latent_attention,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_attention(list, fields, division.tp);
                 },
                 add_latent_obstacles},
    ComputedPart{"kimi_delta_attention", true, describe_kimi_delta, add_kimi_delta, add_kimi_delta_obstacles},
    ComputedPart{"lightning_attention", true, describe_lightning, add_lightning, add_lightning_obstacles},
    ComputedPart{"gated_delta_net", true, describe_delta_net, add_delta_net, add_delta_net_obstacles},
    ComputedPart{"short_convolution", true, describe_short_convolution, add_short_convolution, add_short_convolution_obstacles},
    ComputedPart{"mlp", false, describe_mlp,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_dense_mlp(list, fields, division.tp);
                 },
                 add_mlp_obstacles},
    ComputedPart{"experts", false, describe_experts,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_mixture(list, fields, division.tp, division.ep, division.etp);
                 },
                 [](Words&, const ModelSpec&, const PartSizes&, const ParallelSizes&) {}},  // asked of MoeSpec, as of every mixture
};

const ComputedPart* find_computed(const LayerPart& part) {
    const auto* const found =
        std::find_if(kComputedParts.begin(), kComputedParts.end(), [&](const ComputedPart& one) { return one.kind == part.kind; });
    return found == kComputedParts.end() ? nullptr : found;
}

PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden) {
    return {part, find_part_kind(part.kind)->sizes, hidden};
}

/// Norms of `halves` halves of a layer, in front of them or behind: of the model's kind, over the hidden size.
bool is_norm_of(const LayerPart& part, const ModelSpec& model, std::int64_t halves) {
    if (part.kind != "norm") return false;
    const PartSizes sizes = stated_sizes(part, model.hidden);
    const bool biased = model.normalization == Normalization::layer_norm && model.norm_bias;
    return sizes["width"] == model.hidden && sizes["weight"] == 1 && (sizes["bias"] != 0) == biased && sizes["copies"] == halves;
}

/// What may follow the experts: the shared experts as an MLP, a gate on them, maps to the experts' width and back.
bool shares_as_described(const std::vector<LayerPart>& parts, std::size_t next, const ModelSpec& fields) {
    const MoeSpec& moe = *fields.moe;
    if (moe.shared_ffn > 0) {
        if (next == parts.size() || parts[next].kind != "mlp") return false;
        const PartSizes shared = stated_sizes(parts[next++], fields.hidden);
        if (shared["width"] != moe.shared_ffn || (shared["gated"] != 0) != fields.gated_mlp || shared["bias"] != 0 || shared["in"] != 0)
            return false;
    }
    if (moe.shared_gate) {
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes gate = stated_sizes(parts[next++], fields.hidden);
        if (gate["in"] != fields.hidden || gate["out"] != 1 || gate["bias"] != 0 || gate["copies"] != 1) return false;
    }
    // Maps to the experts' width and back.
    for (const bool there : {true, false}) {
        if (moe.latent == 0) break;
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes map = stated_sizes(parts[next++], fields.hidden);
        const std::int64_t in = there ? fields.hidden : moe.latent, out = there ? moe.latent : fields.hidden;
        if (map["in"] != in || map["out"] != out || map["bias"] != 0 || map["copies"] != 1) return false;
    }
    return next == parts.size();
}

/// Whether a mixer is attention, alone or beside another.
bool attends(const LayerPart& mixer) {
    return !carries_state(mixer) || mixer.kind == "attention_beside_mamba2";
}

}  // namespace

bool norms_in_front_and_behind(const LayerPart& norm) {
    return part_size(norm, "behind") == 2;
}

bool carries_state(const LayerPart& mixer) {
    return mixer.kind != "attention" && mixer.kind != "latent_attention";
}

std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition) {
    ComposedLayer layer{model, {}, {}};
    layer.fields.compositions.clear();
    layer.fields.composition_of_layer.clear();
    layer.fields.beside_layers.clear();
    const std::vector<LayerPart>& parts = composition.parts;
    std::size_t next = 1;
    const auto take = [&](bool mixes_tokens, std::optional<LayerPart>& half) {
        if (next >= parts.size()) return true;
        const ComputedPart* const computed = find_computed(parts[next]);
        if (computed == nullptr || computed->mixes_tokens != mixes_tokens) return mixes_tokens;  // a layer may have no mixer
        if (!computed->describe(stated_sizes(parts[next], model.hidden), layer.fields)) return false;
        half = parts[next++];
        return true;
    };
    if (parts.size() < 2 || !take(true, layer.mixer) || !take(false, layer.feed_forward)) return std::nullopt;
    const bool mixture = layer.feed_forward && layer.feed_forward->kind == "experts";
    if (mixture ? !shares_as_described(parts, next, layer.fields) : next != parts.size()) return std::nullopt;
    const std::int64_t halves = (layer.mixer ? 1 : 0) + (layer.feed_forward ? 1 : 0);
    if (parts.front().kind != "norm") return std::nullopt;
    const std::int64_t behind = stated_sizes(parts.front(), model.hidden)["behind"],
                       both = norms_in_front_and_behind(parts.front()) ? 2 : 1;
    if (halves == 0 || !is_norm_of(parts.front(), model, both * halves)) return std::nullopt;
    if (behind == 0) return layer.mixer && layer.mixer->kind == "gemma_attention" ? std::nullopt : std::optional(layer);
    // Of mixers with a state one alone has a norm behind it, and that beside the one in front.
    const bool stateful = layer.mixer && carries_state(*layer.mixer);
    if (stateful && (layer.mixer->kind != "gemma_attention" || both == 1)) return std::nullopt;
    layer.fields.pre_norms = both == 2;
    layer.fields.post_norms = true;
    return layer;
}

ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer) {
    const auto last = static_cast<std::int64_t>(model.composition_of_layer.size()) - 1;
    const auto kind = model.composition_of_layer.at(static_cast<std::size_t>(std::min(layer, last)));
    auto computed = computed_layer(model, model.compositions.at(kind));
    MGPLAN_ASSERT(computed.has_value(), "layers here compute this kind of layer: " + model.compositions[kind].name);
    return *std::move(computed);
}

ModelSpec with_stated_fields(const ModelSpec& model) {
    ModelSpec all = model;
    if (model.compositions.empty()) return all;
    all.heads = all.kv_heads = 1;
    all.head_dim = model.hidden;
    all.position = PositionEmbedding::none;
    all.qkv_bias = all.attention_output_bias = all.attention_output_gate = all.qk_norm = false;
    for (const LayerComposition& kind : model.compositions) {
        const auto layer = computed_layer(model, kind);
        MGPLAN_ASSERT(layer.has_value(), "layers here compute this kind of layer: " + kind.name);
        const ModelSpec& stated = layer->fields;
        if (layer->mixer && attends(*layer->mixer)) {
            all.heads = stated.heads;
            all.kv_heads = stated.kv_heads;
            all.head_dim = stated.head_dim;
            all.position = stated.position;
            all.qkv_bias = stated.qkv_bias;
            all.attention_output_bias = stated.attention_output_bias;
            all.attention_output_gate = stated.attention_output_gate;
            all.qk_norm = stated.qk_norm;
            all.qk_norm_full_width = stated.qk_norm_full_width;
        }
        if (!layer->feed_forward) continue;
        if (layer->feed_forward->kind == "mlp") all.ffn = stated.ffn;
        all.gated_mlp = stated.gated_mlp;
        all.mlp_bias = stated.mlp_bias;
        all.activation = stated.activation;
    }
    if (model.position == PositionEmbedding::learned) all.position = model.position;
    return all;
}

namespace {

/// Whether the norm of inputs of this width stands beside the layers, and none where layers have no inputs of their own.
bool has_input_norm(const ModelSpec& model, std::int64_t width) {
    if (width == 0) return model.beside_layers.size() == 1;
    return model.beside_layers.size() == 2 && model.beside_layers.front().kind == "layer_input_norm" &&
           part_size(model.beside_layers.front(), "width") == width;
}

/// Whether the parts beside the layers are what they share and the final norm.
bool shares_as_beside(const ModelSpec& model) {
    const auto blocks = static_cast<std::int64_t>(model.beside_layers.size()) - 1;
    for (std::int64_t i = 0; i < blocks; ++i) {
        const LayerPart& block = model.beside_layers[static_cast<std::size_t>(i)];
        if (block.kind == "layer_input_norm") continue;
        if (block.kind != "shared_block" || stated_sizes(block, model.hidden)["bias"] != 0) return false;
    }
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            if (part.kind == "gemma_attention" && !has_input_norm(model, stated_sizes(part, model.hidden)["input"])) return false;
            if (part.kind != "shared_block_mamba2") continue;
            if (model.beside_layers.front().kind != "shared_block") return false;
            const PartSizes sizes = stated_sizes(part, model.hidden);
            if (sizes["block"] >= blocks) return false;
            const PartSizes block = stated_sizes(model.beside_layers[static_cast<std::size_t>(sizes["block"])], model.hidden);
            for (const auto* same : {"query_heads", "kv_heads", "head_dim", "width"}) {
                if (sizes[same] != block[same]) return false;
            }
            // An adapter of keys is as wide as that of queries.
            const bool alike = sizes["kv_heads"] == sizes["query_heads"] && sizes["query_heads"] * sizes["head_dim"] == 2 * model.hidden;
            if (sizes["adapts_attention"] != 0 && !alike) return false;
        }
    }
    return true;
}

/// Biases that are counted and that training has, of a mixture's experts. Of how many mixtures, only the count asks; a piece of the model
/// may have none.
bool is_choice_of(const LayerPart& part, const ModelSpec& model) {
    if (part.kind != "choice_biases") return false;
    return !model.moe || (model.moe->expert_bias && stated_sizes(part, model.hidden)["experts"] == model.moe->experts);
}

}  // namespace

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0) return false;
    if (model.compositions.empty())
        return std::all_of(model.beside_layers.begin(), model.beside_layers.end(),
                           [&](const LayerPart& part) { return is_choice_of(part, model); });
    return !model.beside_layers.empty() && is_norm_of(model.beside_layers.back(), model, 1) && shares_as_beside(model) &&
           model.mtp_layers == 0 && std::all_of(model.compositions.begin(), model.compositions.end(), [&](const LayerComposition& kind) {
               return computed_layer(model, kind).has_value();
           });
}

void add_composed_layer(ParameterList& list, const ComposedLayer& layer, const ParallelSizes& sizes) {
    for (const auto& half : {layer.mixer, layer.feed_forward}) {
        if (!half) continue;
        const ComputedPart* const computed = find_computed(*half);
        computed->add_parameters(list, layer.fields, stated_sizes(*half, layer.fields.hidden), sizes);
        if (!layer.fields.post_norms) continue;
        const std::string name = computed->mixes_tokens ? "post_self_attn_layernorm." : "post_mlp_layernorm.";
        list.add_norm(layer.fields, name + "weight", name + "bias", layer.fields.hidden);
    }
}

std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes) {
    Words all;
    for (const LayerComposition& kind : model.compositions) {
        const ComposedLayer layer = computed_layer(model, kind).value();
        Words obstacles;
        for (const auto& half : {layer.mixer, layer.feed_forward}) {
            if (half) find_computed(*half)->add_obstacles(obstacles, layer.fields, stated_sizes(*half, model.hidden), sizes);
        }
        for (std::string& obstacle : obstacles) {
            if (std::find(all.begin(), all.end(), obstacle) == all.end()) all.push_back(std::move(obstacle));
        }
    }
    return all;
}

}  // namespace mgplan
