#pragma once
// Names of the modules that hold weights, by model type. Source: modeling_*.py of transformers 5.23.0 and the names that its
// save_pretrained() writes, as the vectors in tests/golden/data/transformers hold them.

#include <cstdint>
#include <span>
#include <string_view>

namespace mgplan::formats {

/// Arrangement of the projections of queries, keys and values in a checkpoint.
enum class QkvRows : std::uint8_t {
    separate,  ///< three matrices
    joined,    ///< one matrix: all queries, all keys, all values
    by_head,   ///< one matrix: of each head its query, key and value
    by_group,  ///< one matrix: of each head of keys its queries, its key and its value
};

/// Arrangement of a layer's experts.
enum class ExpertRows : std::uint8_t {
    each,                ///< matrices of their own, by number
    stacked,             ///< (experts, gate and up, hidden) and (experts, hidden, width)
    stacked_transposed,  ///< (experts, hidden, gate and up) and (experts, width, hidden)
    stacked_pairs,       ///< the same with gate and up taking turns (gpt-oss)
    joined_rows,         ///< (experts · width, hidden), each of gate, up and down (DBRX)
};

/// Arrangement of the gated delta net's projections.
enum class DeltaRows : std::uint8_t {
    by_part,  ///< q, k and v; z; b; a
    by_head,  ///< of each key head q, k, v, z; b, a
    apart,    ///< each of q, k, v, z, b and a, and a convolution for each of q, k and v (OLMo hybrid)
};

/// Defaults are a llama's. Names without a dot at the end are modules with .weight and .bias.
struct WeightNames {
    std::string_view type;
    std::string_view embedding = "model.embed_tokens";
    std::string_view positions = {};
    std::int64_t first_position = 0;  ///< the row of the table of positions that the first token uses
    std::string_view final_norm = "model.norm";
    std::string_view output = "lm_head";
    std::string_view layers = "model.layers.";
    std::string_view input_norm = "input_layernorm";
    std::string_view mlp_norm = "post_attention_layernorm";
    std::string_view input_norm_beside = {}, mlp_norm_beside = {};  ///< of parallel halves, each with a norm of its own
    std::string_view attention_post_norm = "post_attention_layernorm";
    std::string_view mlp_post_norm = "post_feedforward_layernorm";
    std::string_view attention = "self_attn.";
    QkvRows qkv_rows = QkvRows::separate;
    std::string_view qkv = {};  ///< joined or by head
    std::string_view q = "q_proj", k = "k_proj", v = "v_proj", attention_output = "o_proj";
    std::string_view q_norm = "q_norm", k_norm = "k_norm";
    std::string_view sinks = "sinks";  ///< a tensor
    bool head_norms_apart = false;     ///< norms of each head are modules of their own, "norms.0" under the name above (StableLM)
    std::string_view mlp = "mlp.";
    std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
    std::string_view gate_and_up = {};  ///< one matrix: all gates, all values
    std::string_view mixture = "mlp.";
    std::string_view router = "gate";
    std::string_view router_choice_bias = "gate.e_score_correction_bias";
    bool choice_bias_is_row = false;  ///< (1, experts), not (experts)
    ExpertRows expert_rows = ExpertRows::each;
    std::string_view experts = "experts.";
    std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";  ///< of each
    std::string_view stacked_first = {}, stacked_last = {};                                        ///< tensors in full
    std::string_view stacked_up = {};                                                              ///< of ExpertRows::joined_rows
    std::string_view shared = "mlp.shared_experts.";
    std::string_view shared_gate = "mlp.shared_expert_gate";
    std::string_view shared_gate_and_up = {}, shared_down = "down_proj";
    std::string_view mixer = "mamba.";  ///< of layers with a state
    DeltaRows delta_rows = DeltaRows::by_part;
    bool transposed = false;      ///< linear layers hold (in, out) (GPT-2's Conv1D)
    bool norms_around_0 = false;  ///< norms multiply with 1 + weight
    /// Tensors outside the model in checkpoints of the type, as its class passes over (_keys_to_ignore_on_load_unexpected): ends of names
    /// with blanks between them, a beginning, and layer_behind if a further layer follows the last.
    std::string_view unused_endings = {};
    std::string_view unused_beginning = {};
    bool layer_behind = false;
};

/// The table, in alphabetical order.
[[nodiscard]] std::span<const WeightNames> weight_name_table();

}  // namespace mgplan::formats
