#pragma once

#include "plan/layers/attention.hpp"

namespace mgplan {

/// Mamba-2 (arXiv 2405.21060, section 7) as Megatron-core's ssm/mamba_mixer.py has it: heads of inner_width / heads values, `groups` pairs
/// of maps of the state. Widths in elements.
struct Mamba2 {
    static constexpr std::string_view kKind = "mamba2";
    static constexpr MixerTraits kTraits{.words = "Mamba-2"};
    std::int64_t inner_width = 0;
    std::int64_t heads = 0;
    std::int64_t groups = 0;
    std::int64_t state_size = 0;
    std::int64_t conv_taps = 0;
    bool norm = true;  ///< a gated norm in front of the output projection
    bool operator==(const Mamba2&) const = default;
    MGPLAN_MEMBERS(inner_width, heads, groups, state_size, conv_taps, norm)
};

/// Attention and Mamba-2 in parallel after one norm (Falcon-H1, modeling_falcon_h1.py). Maximal-update parametrisation sets each matrix's
/// rate by a factor of its output.
struct AttentionBesideMamba2 {
    static constexpr std::string_view kKind = "attention_beside_mamba2";
    static constexpr MixerTraits kTraits{.words = "attention beside Mamba-2", .takes_multipliers = true};
    Attention attention;
    Mamba2 mamba2;
    double attention_output_multiplier = 1;
    double state_output_multiplier = 1;
    double state_gate_multiplier = 1;   ///< of z, the first block of the input projection
    double state_input_multiplier = 1;  ///< of x
    double state_write_multiplier = 1;  ///< of B
    double state_read_multiplier = 1;   ///< of C
    double state_step_multiplier = 1;   ///< of the raw steps
    bool operator==(const AttentionBesideMamba2&) const = default;
    MGPLAN_MEMBERS(attention, mamba2, attention_output_multiplier, state_output_multiplier, state_gate_multiplier, state_input_multiplier,
                   state_write_multiplier, state_read_multiplier, state_step_multiplier)
};

/// A block of attention and an MLP over stream and embeddings joined, whose weights layers share (Zamba2, modeling_zamba2.py).
struct SharedBlock {
    std::int64_t number = 0;  ///< among the model's blocks, from 0
    std::int64_t query_heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t ffn = 0;
    Activation activation = Activation::silu;
    std::optional<Rotary> rotary = {};
    bool operator==(const SharedBlock&) const = default;
    MGPLAN_MEMBERS(number, query_heads, kv_heads, head_dim, ffn, activation, rotary)
};

/// Mamba-2 after such a block. The layer's own tensors: a map of the block's output and, of `adapter_rank` values, adapters of its MLP and,
/// with adapts_attention, of its queries, keys and values.
struct SharedBlockMamba2 {
    static constexpr std::string_view kKind = "shared_block_mamba2";
    static constexpr MixerTraits kTraits{.words = "Mamba-2 behind a shared block",
                                         .shapes_alone = "blocks whose weights layers share (Zamba2)"};
    SharedBlock block;
    Mamba2 mamba2;
    std::int64_t adapter_rank = 0;  ///< 0: none
    bool adapts_attention = false;
    bool operator==(const SharedBlockMamba2&) const = default;
    MGPLAN_MEMBERS(block, mamba2, adapter_rank, adapts_attention)
};

void list_tensors(const Mamba2& mamba2, TensorLister& list);
void list_tensors(const AttentionBesideMamba2& mixer, TensorLister& list);
void list_tensors(const SharedBlockMamba2& mixer, TensorLister& list);
/// Tensors of the block itself, in front of the layers.
void list_tensors(const SharedBlock& block, TensorLister& list);

}  // namespace mgplan
