// Mixers that carry a state along the sequence, and short convolutions, as parts of layers.

#include <array>

#include "plan/model/layer_part_kinds.hpp"

namespace mgplan {
namespace {

/// Mamba (arXiv 2312.00752, section 3.4); inner_norms: norms of the step and of both maps of the state, 1 with weights (Jamba), 2 without
/// (Falcon Mamba).
constexpr std::array kMambaSizes{PartSize{"inner", 1},         PartSize{"state", 1},        PartSize{"conv", 1},
                                 PartSize{"dt_rank", 1},       PartSize{"conv_bias", 0, 1}, PartSize{"proj_bias", 0, 0},
                                 PartSize{"inner_norms", 0, 0}};

std::vector<PartTensor> mamba_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), inner = s["inner"], state = s["state"], rank = s["dt_rank"];
    std::vector<PartTensor> tensors{{"in.weight", {2 * inner, hidden}},
                                    {"conv.weight", {inner, 1, s["conv"]}},
                                    {"x.weight", {rank + 2 * state, inner}},
                                    {"dt.weight", {inner, rank}},
                                    {"dt.bias", {inner}},
                                    {"A", {inner, state}},
                                    {"D", {inner}},
                                    {"out.weight", {hidden, inner}}};
    if (s["conv_bias"] != 0) tensors.push_back({"conv.bias", {inner}});
    if (s["proj_bias"] != 0) {
        tensors.push_back({"in.bias", {2 * inner}});
        tensors.push_back({"out.bias", {hidden}});
    }
    if (s["inner_norms"] == 1) {
        tensors.push_back({"dt_norm.weight", {rank}});
        tensors.push_back({"B_norm.weight", {state}});
        tensors.push_back({"C_norm.weight", {state}});
    }
    return tensors;
}

/// Mamba-2 (arXiv 2405.21060, section 7): heads of inner / heads values, `groups` pairs of maps of the state.
constexpr std::array kMamba2Sizes{PartSize{"inner", 1}, PartSize{"heads", 1},        PartSize{"groups", 1},       PartSize{"state", 1},
                                  PartSize{"conv", 1},  PartSize{"conv_bias", 0, 1}, PartSize{"proj_bias", 0, 0}, PartSize{"norm", 0, 1}};

std::vector<PartTensor> mamba2_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), inner = s["inner"], heads = s["heads"], maps = 2 * s["groups"] * s["state"];
    std::vector<PartTensor> tensors{{"in.weight", {2 * inner + maps + heads, hidden}},
                                    {"conv.weight", {inner + maps, 1, s["conv"]}},
                                    {"dt.bias", {heads}},
                                    {"A", {heads}},
                                    {"D", {heads}},
                                    {"out.weight", {hidden, inner}}};
    if (s["conv_bias"] != 0) tensors.push_back({"conv.bias", {inner + maps}});
    if (s["norm"] != 0) tensors.push_back({"norm.weight", {inner}});
    if (s["proj_bias"] != 0) {
        tensors.push_back({"in.bias", {2 * inner + maps + heads}});
        tensors.push_back({"out.bias", {hidden}});
    }
    return tensors;
}

/// Attention with rotary positions and Mamba-2 in parallel after one norm (Falcon-H1, modeling_falcon_h1.py): sizes of Mamba-2 under their
/// own names, query_heads, kv_heads and head_dim of the attention.
constexpr std::array kBesideSizes{PartSize{"inner", 1},         PartSize{"heads", 1},    PartSize{"groups", 1},
                                  PartSize{"state", 1},         PartSize{"conv", 1},     PartSize{"conv_bias", 0, 1},
                                  PartSize{"proj_bias", 0, 0},  PartSize{"norm", 0, 1},  PartSize{"query_heads", 1},
                                  PartSize{"kv_heads", 1},      PartSize{"head_dim", 1}, PartSize{"qkv_bias", 0, 0},
                                  PartSize{"output_bias", 0, 0}};

std::vector<PartTensor> beside_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), queries = s["query_heads"] * s["head_dim"], keys = s["kv_heads"] * s["head_dim"];
    std::vector<PartTensor> tensors = mamba2_tensors(s);
    tensors.push_back({"qkv.weight", {queries + 2 * keys, hidden}});
    tensors.push_back({"output.weight", {hidden, queries}});
    if (s["qkv_bias"] != 0) tensors.push_back({"qkv.bias", {queries + 2 * keys}});
    if (s["output_bias"] != 0) tensors.push_back({"output.bias", {hidden}});
    return tensors;
}

/// Mamba-2 after a block of attention and an MLP over stream and embeddings joined, whose weights layers share (Zamba2,
/// modeling_zamba2.py): sizes of Mamba-2 under their own names; of the layer's own also a map of the block's output and, of `rank` values
/// where there is one, an adapter of the MLP of `width` columns and, with adapts_attention, of queries, keys and values. The block's own
/// weights are the part "shared_block" with index `block` outside the layers, with the same sizes.
constexpr std::array kSharedMambaSizes{PartSize{"inner", 1},
                                       PartSize{"heads", 1},
                                       PartSize{"groups", 1},
                                       PartSize{"state", 1},
                                       PartSize{"conv", 1},
                                       PartSize{"conv_bias", 0, 1},
                                       PartSize{"proj_bias", 0, 0},
                                       PartSize{"norm", 0, 1},
                                       PartSize{"block", 0, 0},
                                       PartSize{"rank", 0, 0},
                                       PartSize{"width", 1},
                                       PartSize{"query_heads", 1},
                                       PartSize{"kv_heads", 1},
                                       PartSize{"head_dim", 1},
                                       PartSize{"positions", 1, 1},
                                       PartSize{"activation", 0, 0},
                                       PartSize{"adapts_attention", 0, 0}};

std::vector<PartTensor> shared_mamba_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), rank = s["rank"], width = s["width"];
    std::vector<PartTensor> tensors = mamba2_tensors(s);
    tensors.push_back({"map.weight", {hidden, hidden}});
    if (rank == 0) return tensors;
    tensors.push_back({"adapter_down.weight", {rank, hidden}});
    tensors.push_back({"adapter_up.weight", {2 * width, rank}});
    if (s["adapts_attention"] == 0) return tensors;
    tensors.push_back({"attention_down.weight", {rank, 2 * hidden}, 3, 3});
    tensors.push_back({"attention_up.weight", {2 * hidden, rank}, 3, 3});
    return tensors;
}

/// The weights of such a block, in front of the layers.
constexpr std::array kSharedBlockSizes{PartSize{"query_heads", 1}, PartSize{"kv_heads", 1}, PartSize{"head_dim", 1}, PartSize{"width", 1},
                                       PartSize{"bias", 0, 0}};

std::vector<PartTensor> shared_block_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), queries = s["query_heads"] * s["head_dim"], keys = s["kv_heads"] * s["head_dim"];
    const std::int64_t width = s["width"];
    std::vector<PartTensor> tensors{{"input_norm.weight", {2 * hidden}},   {"qkv.weight", {queries + 2 * keys, 2 * hidden}},
                                    {"output.weight", {hidden, queries}},  {"mlp_norm.weight", {hidden}},
                                    {"first.weight", {2 * width, hidden}}, {"second.weight", {hidden, width}}};
    if (s["bias"] != 0) {
        tensors.push_back({"first.bias", {2 * width}});
        tensors.push_back({"second.bias", {hidden}});
    }
    return tensors;
}

/// Gated delta net (arXiv 2412.06464; modeling_qwen3_next.py): q, k, v and the output's gate, the decay and the step of each value head,
/// one convolution over q, k and v, a gated norm of each head. strength: the most that a step writes, 2 where the state's eigenvalues may
/// be negative (OLMo hybrid).
constexpr std::array kDeltaSizes{PartSize{"key_heads", 1}, PartSize{"key_dim", 1}, PartSize{"value_heads", 1},
                                 PartSize{"value_dim", 1}, PartSize{"conv", 1},    PartSize{"strength", 1, 1}};

std::vector<PartTensor> delta_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), keys = s["key_heads"] * s["key_dim"], heads = s["value_heads"], values = heads * s["value_dim"];
    return {{"qkvz.weight", {2 * keys + 2 * values, hidden}},
            {"ba.weight", {2 * heads, hidden}},
            {"conv.weight", {2 * keys + values, 1, s["conv"]}},
            {"dt.bias", {heads}},
            {"A", {heads}},
            {"norm.weight", {s["value_dim"]}},
            {"out.weight", {hidden, values}}};
}

/// Gated short convolution (modeling_lfm2.py): hidden -> 3·hidden, a convolution of each channel, hidden -> hidden.
constexpr std::array kShortConvSizes{PartSize{"conv", 1}, PartSize{"bias", 0, 0}};

std::vector<PartTensor> short_conv_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden();
    std::vector<PartTensor> tensors{
        {"in.weight", {3 * hidden, hidden}}, {"conv.weight", {hidden, 1, s["conv"]}}, {"out.weight", {hidden, hidden}}};
    if (s["bias"] != 0) {
        tensors.push_back({"in.bias", {3 * hidden}});
        tensors.push_back({"conv.bias", {hidden}});
        tensors.push_back({"out.bias", {hidden}});
    }
    return tensors;
}

/// Kimi delta attention (arXiv 2510.26692; modeling_kimi_linear.py): q, k, v with a convolution each, decay and gate through `rank` values.
constexpr std::array kKimiSizes{PartSize{"heads", 1}, PartSize{"head_dim", 1}, PartSize{"conv", 1}, PartSize{"gate_bias", 0, 0}};

std::vector<PartTensor> kimi_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), heads = s["heads"], rank = s["head_dim"], width = heads * rank;
    std::vector<PartTensor> tensors{{"qkv.weight", {3 * width, hidden}},
                                    {"conv.weight", {3 * width, 1, s["conv"]}},
                                    {"decay_down.weight", {rank, hidden}},
                                    {"decay_up.weight", {width, rank}},
                                    {"beta.weight", {heads, hidden}},
                                    {"gate_down.weight", {rank, hidden}},
                                    {"gate_up.weight", {width, rank}},
                                    {"dt.bias", {width}},
                                    {"A", {heads}},
                                    {"norm.weight", {rank}},
                                    {"out.weight", {hidden, width}}};
    if (s["gate_bias"] != 0) tensors.push_back({"gate_up.bias", {width}});
    return tensors;
}

/// Lightning attention (arXiv 2401.04658; modeling_minimax.py): q, k, v, a gate of the output and a norm over all heads.
constexpr std::array kLightningSizes{PartSize{"heads", 1}, PartSize{"head_dim", 1}};

std::vector<PartTensor> lightning_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), width = s["heads"] * s["head_dim"];
    return {
        {"qkv.weight", {3 * width, hidden}}, {"gate.weight", {width, hidden}}, {"norm.weight", {width}}, {"out.weight", {hidden, width}}};
}

/// The recurrent block of RecurrentGemma (arXiv 2402.19427, section 2.3): two branches, a convolution, a gated linear recurrence whose
/// gates are block-diagonal over the heads.
constexpr std::array kRglruSizes{PartSize{"width", 1}, PartSize{"heads", 1}, PartSize{"conv", 1}};

std::vector<PartTensor> rglru_tensors(const PartSizes& s) {
    const std::int64_t hidden = s.hidden(), width = s["width"], heads = s["heads"], block = width / heads;
    return {{"branches.weight", {2 * width, hidden}},
            {"branches.bias", {2 * width}},
            {"conv.weight", {width, 1, s["conv"]}},
            {"conv.bias", {width}},
            {"gates.weight", {2, heads, block, block}},
            {"gates.bias", {2, heads, block}},
            {"decay", {width}},
            {"out.weight", {hidden, width}},
            {"out.bias", {hidden}}};
}

constexpr PartTraits kMixer{.role = PartRole::mixer};

constexpr std::array kRecurrentKinds{
    PartKind{"mamba", "Mamba", kMambaSizes, mamba_tensors, {.role = PartRole::mixer, .timed_at_least = "the selective scan of Mamba"}},
    PartKind{"mamba2", "Mamba-2", kMamba2Sizes, mamba2_tensors, kMixer},
    PartKind{"attention_beside_mamba2",
             "attention beside Mamba-2",
             kBesideSizes,
             beside_tensors,
             {.role = PartRole::mixer, .takes_multipliers = true}},
    PartKind{"shared_block_mamba2",
             "Mamba-2 behind a shared block",
             kSharedMambaSizes,
             shared_mamba_tensors,
             {.role = PartRole::mixer, .shapes_alone = "blocks whose weights layers share (Zamba2)"}},
    PartKind{"shared_block", "shared block of attention and MLP", kSharedBlockSizes, shared_block_tensors, {.shared = true}},
    PartKind{"gated_delta_net", "gated delta net", kDeltaSizes, delta_tensors, kMixer},
    PartKind{"short_convolution", "short convolution", kShortConvSizes, short_conv_tensors, kMixer},
    PartKind{"kimi_delta_attention", "Kimi delta attention", kKimiSizes, kimi_tensors, kMixer},
    PartKind{"lightning_attention", "lightning attention", kLightningSizes, lightning_tensors, kMixer},
    PartKind{"gated_linear_recurrence",
             "gated linear recurrence",
             kRglruSizes,
             rglru_tensors,
             {.role = PartRole::mixer, .timed_at_least = "the gated linear recurrence of RecurrentGemma"}}};

}  // namespace

std::span<const PartKind> recurrent_part_kinds() {
    return kRecurrentKinds;
}

}  // namespace mgplan
