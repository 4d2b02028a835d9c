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

bool describe_gemma_attention(const PartSizes& s, ModelSpec& fields) {
    return s["heads"] % s["kv_heads"] == 0 && s["head_dim"] % 2 == 0 && fields.normalization == Normalization::rms_norm &&
           fields.position == PositionEmbedding::rope && (s["input"] == 0) == (s["input_rows"] == 0);
}

/// A layer's own table of words divided by words, the rest of its inputs whole.
void add_layer_inputs(ParameterList list, const ModelSpec& fields, const PartSizes& s, std::int64_t tp) {
    const std::int64_t hidden = fields.hidden, input = s["input"];
    list.add_sharded("layer_input.words.weight", {s["input_rows"] / tp, input}, 0);
    list.add("layer_input.projection.weight", {input, hidden}, PartialGradient::sequence_parallel);
    list.add("layer_input.gate.weight", {input, hidden}, PartialGradient::sequence_parallel);
    list.add("layer_input.back.weight", {hidden, input}, PartialGradient::sequence_parallel);
    list.add_norm(fields, "layer_input.norm.weight", "layer_input.norm.bias", hidden);
}

/// modeling_gemma4.py, Gemma4TextAttention: queries, keys and values divided over tp by heads, their norms whole on every rank, which sees
/// its own heads; a bypass whole.
void add_gemma_heads(ParameterList& list, const ModelSpec& fields, const PartSizes& s, std::int64_t tp) {
    const std::int64_t hidden = fields.hidden, width = s["head_dim"], rank = s["bypass"];
    const std::int64_t queries = s["heads"] / tp * width, keys = s["kv_heads"] / tp * width;
    list.add_sharded("self_attention.linear_proj.weight", {hidden, queries}, 1);
    if (s["bias"] != 0) list.add("self_attention.linear_proj.bias", {hidden}, PartialGradient::sequence_parallel);
    list.add_norm(fields, "self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    std::vector<std::int64_t> blocks{queries};
    if (s["shares_kv"] == 0) blocks.resize(s["key_is_value"] != 0 ? 2 : 3, keys);
    list.add_in_blocks("self_attention.linear_qkv.weight", blocks, {hidden});
    if (s["bias"] != 0) list.add_in_blocks("self_attention.linear_qkv.bias", blocks, {});
    list.add("self_attention.q_layernorm.weight", {width}, PartialGradient::always);
    if (s["shares_kv"] == 0) list.add("self_attention.k_layernorm.weight", {width}, PartialGradient::always);
    if (rank == 0) return;
    list.add("bypass.there.weight", {rank, hidden}, PartialGradient::sequence_parallel);
    list.add("bypass.back.weight", {hidden, rank}, PartialGradient::sequence_parallel);
    list.add_norm(fields, "bypass.norm.weight", "bypass.norm.bias", hidden);
}

void add_gemma_attention(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    add_gemma_heads(list, fields, s, division.tp);
    if (s["input"] > 0) add_layer_inputs(list, fields, s, division.tp);
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

/// modeling_gemma3n.py, Gemma3nTextDecoderLayer: what weighs, predicts and corrects streams is whole on every rank.
void add_gemma3n(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& division) {
    const std::int64_t streams = s["streams"];
    add_gemma_heads(list, fields, s, division.tp);
    ParameterList mixer = list.within("mixer.");
    add_dense_mlp(mixer, fields, division.tp);
    mixer.add_norm(fields, "post_mlp_layernorm.weight", "post_mlp_layernorm.bias", fields.hidden);
    add_layer_inputs(mixer, fields, s, division.tp);
    ParameterList mixing = mixer.within("streams.");
    mixing.add_norm(fields, "router_norm.weight", "router_norm.bias", fields.hidden);
    mixing.add("router.weight", {streams, fields.hidden}, PartialGradient::sequence_parallel);
    mixing.add("prediction.weight", {streams * streams, streams}, PartialGradient::sequence_parallel);
    mixing.add("correction.weight", {streams, streams}, PartialGradient::sequence_parallel);
    mixing.add("output_scale", {fields.hidden}, PartialGradient::sequence_parallel);
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

void add_compressor(ParameterList list, const ModelSpec& fields, std::int64_t width, std::int64_t columns, std::int64_t rate,
                    PartialGradient partial) {
    list.add("ape", {rate, columns}, partial);
    list.add("wkv.weight", {columns, fields.hidden}, partial);
    list.add("wgate.weight", {columns, fields.hidden}, partial);
    list.add("norm.weight", {width}, partial);
}

/// Whole on every rank (Megatron-LM's branch dev at d48bd6be, transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py,
/// csa.py). Names of what Transformer Engine multiplies in fp8 begin with "linear_"; those of other products do not.
void add_compressed_attention(ParameterList& list, const ModelSpec& fields, const PartSizes& s, const ParallelSizes& /*division*/) {
    const std::int64_t hidden = fields.hidden, width = s["head_dim"], rank = s["q_lora_rank"], groups = s["groups"];
    const std::int64_t queries = s["heads"] * width;
    constexpr PartialGradient kRows = PartialGradient::sequence_parallel;
    list.add_norm(fields, "input_layernorm.weight", "input_layernorm.bias", hidden);
    ParameterList attention = list.within("self_attention.");
    attention.add("o_group_proj", {groups, s["group_rank"], queries / groups}, kRows);
    ParameterList core = attention.within("core_attention.");
    core.add("attn_sink", {s["heads"]}, kRows);
    if (s["rate"] > 0) add_compressor(core.within("compressor."), fields, width, (s["overlaps"] != 0 ? 2 : 1) * width, s["rate"], kRows);
    if (s["index_heads"] > 0) {
        ParameterList indexer = core.within("indexer.");
        indexer.add("linear_wq_b.weight", {s["index_heads"] * s["index_dim"], rank}, PartialGradient::never);
        indexer.add("weights_proj.weight", {s["index_heads"], hidden}, PartialGradient::never);
        add_compressor(indexer.within("compressor."), fields, s["index_dim"], 2 * s["index_dim"], s["rate"], PartialGradient::never);
    }
    attention.add("linear_proj.weight", {hidden, groups * s["group_rank"]}, kRows);
    attention.add("linear_q_down_proj.weight", {rank, hidden}, kRows);
    attention.add("linear_q_up_proj.weight", {queries, rank}, kRows);
    attention.add("linear_kv_proj.weight", {width, hidden}, kRows);
    attention.add("kv_layernorm.weight", {width}, kRows);
    attention.add("q_layernorm.weight", {rank}, kRows);
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

/// Whether beside the layers stand so many streams' ends and the norm of inputs of this width, each alone and only where there are some,
/// and the final norm.
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

/// The norm of all layers' inputs (Gemma 4).
void add_input_norm(std::vector<Parameter>& parameters, const ModelSpec& model, const PartSizes& s, std::size_t /*place*/,
                    std::int64_t /*tp*/) {
    ParameterList(parameters, "layer_inputs.").add_norm(model, "norm.weight", "norm.bias", s["width"], PartialGradient::sequence_parallel);
}

/// Where streams begin (Gemma 3n).
void add_stream_entry(std::vector<Parameter>& parameters, const ModelSpec& model, const PartSizes& s, std::size_t /*place*/,
                      std::int64_t /*tp*/) {
    ParameterList list(parameters, "embedding.");
    for (std::int64_t stream = 1; stream < s["streams"]; ++stream)
        list.add(fmt::format("streams.{}.weight", stream), {model.hidden, model.hidden}, PartialGradient::sequence_parallel);
}

/// And where they end.
void add_stream_exit(std::vector<Parameter>& parameters, const ModelSpec& model, const PartSizes& s) {
    ParameterList list(parameters, "decoder.");
    for (std::int64_t stream = 1; stream < s["streams"]; ++stream)
        list.add(fmt::format("stream_exit.{}.weight", stream), {model.hidden, model.hidden}, PartialGradient::sequence_parallel);
}

constexpr std::array kComputedAttention{
    ComputedPart{"attention",
                 describe_attention,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_attention(list, fields, division.tp);
                 },
                 add_attention_obstacles,
                 {.attends = Attends::as_fields_say}},
    ComputedPart{"latent_attention",
                 describe_latent_attention,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_attention(list, fields, division.tp);
                 },
                 add_latent_obstacles,
                 {.attends = Attends::as_fields_say}},
    ComputedPart{"gemma_attention",
                 describe_gemma_attention,
                 add_gemma_attention,
                 add_gemma_obstacles,
                 {.finds_beside = finds_input_norm, .has_norms_around = true}},
    ComputedPart{
        "gemma3n_layer",
        describe_gemma3n,
        add_gemma3n,
        add_gemma3n_obstacles,
        {.finds_beside = finds_ends_and_input_norm, .reads_all_streams = true, .has_norms_around = true, .brings_feed_forward = true}},
    ComputedPart{"compressed_attention",
                 describe_compressed,
                 add_compressed_attention,
                 add_compressed_obstacles,
                 {.recompute_sets = kCompressedRecompute}}};

constexpr std::array kBesideAttention{ComputedBeside{"layer_input_norm", stands_beside_parts, add_input_norm},
                                      ComputedBeside{"stream_ends", stands_beside_parts, add_stream_entry, add_stream_exit}};

}  // namespace

std::span<const ComputedPart> computed_attention() {
    return kComputedAttention;
}

std::span<const ComputedBeside> beside_attention() {
    return kBesideAttention;
}

}  // namespace mgplan
