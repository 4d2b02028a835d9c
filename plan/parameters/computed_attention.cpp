// Attention: packed, latent, that of Gemma 4, layers of Gemma 3n, and compressed attention.

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

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

/// Latent attention's sizes are in MlaSpec too, together with values that no size of the part holds; both must agree.
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

bool describe_gemma_attention(const PartSizes& s, ModelSpec& fields) {
    return s["heads"] % s["kv_heads"] == 0 && s["head_dim"] % 2 == 0 && fields.normalization == Normalization::rms_norm &&
           fields.position == PositionEmbedding::rope && (s["input"] == 0) == (s["input_rows"] == 0);
}

void add_gemma_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "the attention of Gemma 4", "kv heads", s["kv_heads"], division.tp);
    if (s["input"] > 0) require_division(obstacles, "the inputs of layers", "words", s["input_rows"], division.tp);
    refuse_context_parallelism(obstacles, "the attention of Gemma 4", division);
}

bool describe_gemma3n(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = true;
    fields.mlp_bias = false;
    return s["streams"] > 1 && s["streams"] <= ModelLimits::residual_streams && s["cut_millionths"] < 1'000'000 &&
           describe_gemma_attention(s, fields) && describe_activation(s, fields) && fields.activation != Activation::xielu;
}

void add_gemma3n_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "layers of Gemma 3n", "kv heads", s["kv_heads"], division.tp);
    require_division(obstacles, "layers of Gemma 3n", "columns of the MLP", fields.ffn, division.tp);
    require_division(obstacles, "the inputs of layers", "words", s["input_rows"], division.tp);
    refuse_context_parallelism(obstacles, "layers of Gemma 3n", division);
}

bool describe_compressed(const PartSizes& s, ModelSpec& fields) {
    const bool compresses = s["rate"] > 0, indexed = s["index_heads"] > 0;
    return fields.normalization == Normalization::rms_norm && fields.position == PositionEmbedding::rope && s["window"] > 0 &&
           s["rotated"] % 2 == 0 && s["rotated"] <= s["head_dim"] && s["heads"] * s["head_dim"] % s["groups"] == 0 &&
           s["overlaps"] <= (compresses ? 1 : 0) && indexed == (s["index_top_k"] > 0) && (!indexed || compresses) &&
           (!indexed || (s["overlaps"] == 1 && s["index_dim"] >= std::max<std::int64_t>(1, s["rotated"])));
}

/// Both sources hold it whole and alone: DSv4HybridAttention asserts a tp of 1 and has cp for packed documents in whole pieces alone; the
/// tp plan of transformers leaves it whole.
void add_compressed_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    if (division.tp > 1) obstacles.push_back(fmt::format("tp = {} over compressed attention, whose keys all heads share", division.tp));
    refuse_context_parallelism(obstacles, "compressed attention", division);
}

/// As its recipes have them (Megatron-LM's branch dev at d48bd6be, examples/moe_recipes).
constexpr std::array kCompressedRecompute{EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj},
                                          EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::mhc},
                                          EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::moe_act}};

/// True if the parts outside the layers are the ends of `streams` streams if there are several, the norm of inputs of this width if there
/// are any, and the final norm.
bool has_ends_and_input_norm(const ModelSpec& model, std::int64_t streams, std::int64_t width) {
    std::vector<LayerPart> wanted;
    if (streams > 1) wanted.push_back({"stream_ends", {{"streams", streams}}});
    if (width > 0) wanted.push_back({"layer_input_norm", {{"width", width}}});
    return model.beside_layers.size() == wanted.size() + 1 && std::equal(wanted.begin(), wanted.end(), model.beside_layers.begin());
}

bool finds_input_norm(const PartSizes& s, const ModelSpec& model) {
    return has_ends_and_input_norm(model, 1, s["input"]);
}

bool finds_ends_and_input_norm(const PartSizes& s, const ModelSpec& model) {
    return has_ends_and_input_norm(model, s["streams"], s["input"]);
}

bool stands_beside_parts(const LayerPart& /*part*/, const ModelSpec& model) {
    return !model.compositions.empty();
}

constexpr std::array kComputedAttention{
    ComputedPart{"attention", describe_attention, add_attention_obstacles, {.attends = Attends::as_fields_say}},
    ComputedPart{"latent_attention", describe_latent_attention, add_latent_obstacles, {.attends = Attends::as_fields_say}},
    ComputedPart{
        "gemma_attention", describe_gemma_attention, add_gemma_obstacles, {.finds_beside = finds_input_norm, .has_norms_around = true}},
    ComputedPart{
        "gemma3n_layer",
        describe_gemma3n,
        add_gemma3n_obstacles,
        {.finds_beside = finds_ends_and_input_norm, .reads_all_streams = true, .has_norms_around = true, .brings_feed_forward = true}},
    ComputedPart{"compressed_attention", describe_compressed, add_compressed_obstacles, {.recompute_sets = kCompressedRecompute}}};

constexpr std::array kBesideAttention{ComputedBeside{"layer_input_norm", stands_beside_parts},
                                      ComputedBeside{"stream_ends", stands_beside_parts}};

}  // namespace

std::span<const ComputedPart> computed_attention() {
    return kComputedAttention;
}

std::span<const ComputedBeside> beside_attention() {
    return kBesideAttention;
}

}  // namespace mgplan
