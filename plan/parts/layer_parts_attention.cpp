// Softmax attention as parts of layers.

#include <array>

#include "plan/parts/layer_part_kinds.hpp"
#include "plan/parts/typed_parts.hpp"

namespace mgplan {
namespace {

/// positions: 0 not stated, so that the part is counted and nothing else, 1 none, 2 rotary as the model's fields say.
/// qk_norm: 0 none, 1 one head's weights for all heads, 2 weights for each head, 3 over all heads at once.
constexpr std::array kAttentionSizes{
    PartSize{"heads", 1},          PartSize{"kv_heads", 1},     PartSize{"head_dim", 1},        PartSize{"v_head_dim", 0, 0},
    PartSize{"in", 0, 0},          PartSize{"out", 0, 0},       PartSize{"qkv_bias", 0, 0},     PartSize{"output_bias", 0, 0},
    PartSize{"output_gate", 0, 0}, PartSize{"qk_norm", 0, 0},   PartSize{"qk_norm_bias", 0, 0}, PartSize{"v_norm", 0, 0},
    PartSize{"sinks", 0, 0},       PartSize{"shares_kv", 0, 0}, PartSize{"key_is_value", 0, 0}, PartSize{"positions", 0, 0}};

std::vector<CountedTensor> attention_tensors(const PartSizes& s) {
    const std::int64_t hidden = s["in"] > 0 ? s["in"] : s.hidden(), out = s["out"] > 0 ? s["out"] : s.hidden();
    const std::int64_t heads = s["heads"], groups = s["kv_heads"], width = s["head_dim"];
    const std::int64_t v_width = s["v_head_dim"] > 0 ? s["v_head_dim"] : width;
    const bool own_keys = s["shares_kv"] == 0, own_values = own_keys && s["key_is_value"] == 0;
    std::vector<CountedTensor> tensors;
    const auto linear = [&](std::string_view name, std::string_view bias, std::int64_t rows, std::int64_t columns, bool biased) {
        tensors.push_back({std::string(name), {rows, columns}});
        if (biased) tensors.push_back({std::string(bias), {rows}});
    };
    const bool biased = s["qkv_bias"] != 0;
    linear("q.weight", "q.bias", heads * width * (s["output_gate"] == 1 ? 2 : 1), hidden, biased);
    if (own_keys) linear("k.weight", "k.bias", groups * width, hidden, biased);
    if (own_values) linear("v.weight", "v.bias", groups * v_width, hidden, biased);
    linear("output.weight", "output.bias", out, heads * v_width, s["output_bias"] != 0);
    const auto norm = [&](std::string_view name, std::string_view bias, std::int64_t all) {
        const std::int64_t kind = s["qk_norm"];
        if (kind == 0) return;
        tensors.push_back({std::string(name), {kind == 1 ? width : all * width}});
        if (s["qk_norm_bias"] != 0) tensors.push_back({std::string(bias), {kind == 1 ? width : all * width}});
    };
    norm("q_norm.weight", "q_norm.bias", heads);
    if (own_keys) norm("k_norm.weight", "k_norm.bias", groups);
    if (s["v_norm"] != 0 && own_keys) tensors.push_back({"v_norm.weight", {v_width}});
    if (s["sinks"] != 0) tensors.push_back({"sinks", {heads}});
    return tensors;
}

/// Attention of Gemma 3n and 4 (modeling_gemma3n.py, modeling_gemma4.py), with norms of each head; window: places that a query sees, 0 all
/// before. shares_kv: keys and values are another layer's; key_is_value: one matrix gives both. input: width of inputs that the layer has
/// of its own, from a table of input_rows words and the embeddings, 0 none. bypass: values between the two products parallel to it, 0 none.
/// bias: of queries, keys, values and the output.
constexpr std::array kGemmaSizes{PartSize{"heads", 1},        PartSize{"kv_heads", 1},        PartSize{"head_dim", 1},
                                 PartSize{"shares_kv", 0, 0}, PartSize{"key_is_value", 0, 0}, PartSize{"window", 0, 0},
                                 PartSize{"input", 0, 0},     PartSize{"input_rows", 0, 0},   PartSize{"bypass", 0, 0},
                                 PartSize{"bias", 0, 0}};

/// A layer of Gemma 3n (modeling_gemma3n.py, Gemma3nTextDecoderLayer) after the norms of its attention: that attention, a gated MLP of
/// `width` with its norms, and the tensors that predict and correct `streams` residual streams. cut_millionths: share of zeros that the
/// MLP's gate is cut to.
constexpr std::array kGemma3nSizes{PartSize{"heads", 1},         PartSize{"kv_heads", 1},        PartSize{"head_dim", 1},
                                   PartSize{"shares_kv", 0, 0},  PartSize{"key_is_value", 0, 0}, PartSize{"window", 0, 0},
                                   PartSize{"input", 1},         PartSize{"input_rows", 1},      PartSize{"bypass", 1},
                                   PartSize{"streams", 1},       PartSize{"width", 1},           PartSize{"cut_millionths", 0, 0},
                                   PartSize{"activation", 0, 0}, PartSize{"bias", 0, 0}};

std::vector<CountedTensor> gemma3n_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<Gemma3nLayer>(s);
    tensors.push_back({"mlp.norm.weight", {s.hidden()}});
    return tensors;
}

/// Where such streams begin and end: a matrix at either end for each but the first.
constexpr std::array kStreamEndSizes{PartSize{"streams", 2}};

std::vector<CountedTensor> stream_end_tensors(const PartSizes& s) {
    const std::int64_t matrices = 2 * (s["streams"] - 1);
    return {{"streams.weight", {s.hidden(), s.hidden()}, matrices, matrices}};
}

/// The norm that inputs of all layers share, in front of the layers.
constexpr std::array kInputNormSizes{PartSize{"width", 1}};

std::vector<CountedTensor> input_norm_tensors(const PartSizes& s) {
    return {{"norm.weight", {s["width"]}}};
}

constexpr std::array kLatentSizes{PartSize{"heads", 1},        PartSize{"q_lora_rank", 0, 0}, PartSize{"kv_lora_rank", 1},
                                  PartSize{"qk_nope", 0},      PartSize{"qk_rope", 0},        PartSize{"v_head_dim", 1},
                                  PartSize{"down_bias", 0, 0}, PartSize{"output_bias", 0, 0}, PartSize{"latent_norms", 0, 1}};

std::vector<CountedTensor> latent_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<LatentAttention>(s);
    if (s["down_bias"] == 0) return tensors;
    if (s["q_lora_rank"] > 0) add_biases(tensors, {"self_attention.linear_q_down_proj"});
    add_biases(tensors, {"self_attention.linear_kv_down_proj"});
    return tensors;
}

/// The indexer of DeepSeek Sparse Attention: queries from their latent, one key with a LayerNorm, a weight for each head.
constexpr std::array kIndexerSizes{PartSize{"heads", 1}, PartSize{"head_dim", 1}, PartSize{"q_lora_rank", 1}};

std::vector<CountedTensor> indexer_tensors(const PartSizes& s) {
    const std::int64_t heads = s["heads"], width = s["head_dim"];
    return {{"indexer.q.weight", {heads * width, s["q_lora_rank"]}},
            {"indexer.k.weight", {width, s.hidden()}},
            {"indexer.k_norm.weight", {width}},
            {"indexer.k_norm.bias", {width}},
            {"indexer.weights.weight", {heads, s.hidden()}}};
}

/// Attention of DeepSeek-V4 (modeling_deepseek_v4.py): queries through a latent, one head whose keys are its values, an output projection
/// that is block-diagonal over `groups` of heads, one trained logit a head. rate: tokens that one compressed key stands for, 0 where the
/// layer sees its window alone; overlaps: compressed keys come from two windows; index_heads: of what chooses index_top_k compressed keys,
/// 0 none; window: tokens that a query sees, its own among them; rotated: values of each head that rotary positions turn.
constexpr std::array kCompressedSizes{PartSize{"heads", 1},       PartSize{"head_dim", 1},       PartSize{"q_lora_rank", 1},
                                      PartSize{"groups", 1},      PartSize{"group_rank", 1},     PartSize{"rate", 0, 0},
                                      PartSize{"overlaps", 0, 0}, PartSize{"index_heads", 0, 0}, PartSize{"index_dim", 0, 0},
                                      PartSize{"window", 0, 0},   PartSize{"rotated", 0, 0},     PartSize{"index_top_k", 0, 0}};

constexpr std::array kAttentionKinds{PartKind{"attention", kAttentionSizes, attention_tensors, PartRole::mixer},
                                     PartKind{"gemma_attention", kGemmaSizes, tensors_of<GemmaAttention>, PartRole::mixer},
                                     PartKind{"gemma3n_layer", kGemma3nSizes, gemma3n_tensors, PartRole::mixer},
                                     PartKind{"stream_ends", kStreamEndSizes, stream_end_tensors},
                                     PartKind{"layer_input_norm", kInputNormSizes, input_norm_tensors},
                                     PartKind{"latent_attention", kLatentSizes, latent_tensors, PartRole::mixer},
                                     PartKind{"compressed_attention", kCompressedSizes, tensors_of<CompressedAttention>, PartRole::mixer},
                                     PartKind{"indexer", kIndexerSizes, indexer_tensors}};

}  // namespace

std::span<const PartKind> attention_part_kinds() {
    return kAttentionKinds;
}

}  // namespace mgplan
