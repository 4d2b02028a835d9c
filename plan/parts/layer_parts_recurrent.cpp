// Mixers that carry a state along the sequence, and short convolutions, as parts of layers.

#include <array>

#include "plan/parts/layer_part_kinds.hpp"
#include "plan/parts/typed_parts.hpp"

namespace mgplan {
namespace {

/// Mamba (arXiv 2312.00752, section 3.4); inner_norms: norms of the step and of both maps of the state, 1 with weights (Jamba), 2 without
/// (Falcon Mamba).
constexpr std::array kMambaSizes{PartSize{"inner", 1},         PartSize{"state", 1},        PartSize{"conv", 1},
                                 PartSize{"dt_rank", 1},       PartSize{"conv_bias", 0, 1}, PartSize{"proj_bias", 0, 0},
                                 PartSize{"inner_norms", 0, 0}};

std::vector<CountedTensor> mamba_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<Mamba>(s);
    if (s["proj_bias"] != 0) add_biases(tensors, {"mixer.in_proj", "mixer.out_proj"});
    return tensors;
}

/// Mamba-2 (arXiv 2405.21060, section 7): heads of inner / heads values, `groups` pairs of maps of the state.
constexpr std::array kMamba2Sizes{PartSize{"inner", 1}, PartSize{"heads", 1},        PartSize{"groups", 1},       PartSize{"state", 1},
                                  PartSize{"conv", 1},  PartSize{"conv_bias", 0, 1}, PartSize{"proj_bias", 0, 0}, PartSize{"norm", 0, 1}};

/// Mamba-2, alone or with what `Kind` has next to it.
template <class Kind>
std::vector<CountedTensor> mamba2_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<Kind>(s);
    if (s["conv_bias"] == 0) std::erase_if(tensors, [](const CountedTensor& tensor) { return tensor.name == "mixer.conv1d_bias"; });
    if (s["proj_bias"] != 0) add_biases(tensors, {"mixer.in_proj", "mixer.out_proj"});
    return tensors;
}

/// Attention with rotary positions and Mamba-2 in parallel after one norm (Falcon-H1, modeling_falcon_h1.py): sizes of Mamba-2 under their
/// own names, query_heads, kv_heads and head_dim of the attention.
constexpr std::array kBesideSizes{PartSize{"inner", 1},         PartSize{"heads", 1},    PartSize{"groups", 1},
                                  PartSize{"state", 1},         PartSize{"conv", 1},     PartSize{"conv_bias", 0, 1},
                                  PartSize{"proj_bias", 0, 0},  PartSize{"norm", 0, 1},  PartSize{"query_heads", 1},
                                  PartSize{"kv_heads", 1},      PartSize{"head_dim", 1}, PartSize{"qkv_bias", 0, 0},
                                  PartSize{"output_bias", 0, 0}};

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

/// The weights of such a block, in front of the layers.
constexpr std::array kSharedBlockSizes{PartSize{"query_heads", 1}, PartSize{"kv_heads", 1}, PartSize{"head_dim", 1}, PartSize{"width", 1},
                                       PartSize{"bias", 0, 0}};

std::vector<CountedTensor> shared_block_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<SharedBlock>(s);
    if (s["bias"] != 0) add_biases(tensors, {"shared_blocks.0.linear_fc1", "shared_blocks.0.linear_fc2"});
    return tensors;
}

/// Gated delta net (arXiv 2412.06464; modeling_qwen3_next.py): q, k, v and the output's gate, the decay and the step of each value head,
/// one convolution over q, k and v, a gated norm of each head. strength: the most that a step writes, 2 where the state's eigenvalues may
/// be negative (OLMo hybrid).
constexpr std::array kDeltaSizes{PartSize{"key_heads", 1}, PartSize{"key_dim", 1}, PartSize{"value_heads", 1},
                                 PartSize{"value_dim", 1}, PartSize{"conv", 1},    PartSize{"strength", 1, 1}};

/// Gated short convolution (modeling_lfm2.py): hidden -> 3·hidden, a convolution of each channel, hidden -> hidden.
constexpr std::array kShortConvSizes{PartSize{"conv", 1}, PartSize{"bias", 0, 0}};

std::vector<CountedTensor> short_conv_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<ShortConvolution>(s);
    if (s["bias"] != 0) add_biases(tensors, {"mixer.in_proj", "mixer.conv", "mixer.out_proj"});
    return tensors;
}

/// Kimi delta attention (arXiv 2510.26692; modeling_kimi_linear.py): q, k, v with a convolution each, decay and gate through `rank` values.
constexpr std::array kKimiSizes{PartSize{"heads", 1}, PartSize{"head_dim", 1}, PartSize{"conv", 1}, PartSize{"gate_bias", 0, 0}};

std::vector<CountedTensor> kimi_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors = tensors_of<KimiDeltaAttention>(s);
    if (s["gate_bias"] != 0) add_biases(tensors, {"self_attention.gate_up"});
    return tensors;
}

/// Lightning attention (arXiv 2401.04658; modeling_minimax.py): q, k, v, a gate of the output and a norm over all heads.
constexpr std::array kLightningSizes{PartSize{"heads", 1}, PartSize{"head_dim", 1}};

/// The recurrent block of RecurrentGemma (arXiv 2402.19427, section 2.3): two branches, a convolution, a gated linear recurrence whose
/// gates are block-diagonal over the heads.
constexpr std::array kRglruSizes{PartSize{"width", 1}, PartSize{"heads", 1}, PartSize{"conv", 1}};

constexpr std::array kRecurrentKinds{
    PartKind{"mamba", kMambaSizes, mamba_tensors, PartRole::mixer},
    PartKind{"mamba2", kMamba2Sizes, mamba2_tensors<Mamba2>, PartRole::mixer},
    PartKind{"attention_beside_mamba2", kBesideSizes, mamba2_tensors<AttentionBesideMamba2>, PartRole::mixer},
    PartKind{"shared_block_mamba2", kSharedMambaSizes, mamba2_tensors<SharedBlockMamba2>, PartRole::mixer},
    PartKind{"shared_block", kSharedBlockSizes, shared_block_tensors},
    PartKind{"gated_delta_net", kDeltaSizes, tensors_of<GatedDeltaNet>, PartRole::mixer},
    PartKind{"short_convolution", kShortConvSizes, short_conv_tensors, PartRole::mixer},
    PartKind{"kimi_delta_attention", kKimiSizes, kimi_tensors, PartRole::mixer},
    PartKind{"lightning_attention", kLightningSizes, tensors_of<LightningAttention>, PartRole::mixer},
    PartKind{"gated_linear_recurrence", kRglruSizes, tensors_of<GatedLinearRecurrence>, PartRole::mixer}};

}  // namespace

std::span<const PartKind> recurrent_part_kinds() {
    return kRecurrentKinds;
}

}  // namespace mgplan
