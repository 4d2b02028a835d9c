#pragma once
// The model types of Hugging Face configs that the layers here describe, and what their classes state without a field in
// the file. Source of every row: configuration_*.py and modeling_*.py of transformers 5.23.0, or what the row names.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// Layers that the fields of biases cover.
enum class BiasRule : std::uint8_t {
    none,        ///< no biases in attention, whatever a file states
    attention,   ///< attention_bias: q, k, v and the output
    qkv,         ///< attention_bias: q, k and v; attention_out_bias: the output
    qkv_always,  ///< q, k and v unless qkv_bias says no
    all,         ///< use_bias: every linear layer
};

/// Rule for the layers that have the window of sliding_window, if layer_types does not list them. Layers count from 0.
enum class WindowRule : std::uint8_t {
    none,                ///< the class has no windows
    every_layer,         ///<
    every_second,        ///< 0, 2, 4, …
    switched,            ///< every layer, with use_sliding_window
    from_max_layers,     ///< from max_window_layers on
    switched_from_max,   ///< the same, with use_sliding_window
    switched_alternate,  ///< even ones below max_window_layers, with use_sliding_window
    all_but_nth,         ///< all but every sliding_window_pattern-th
    all_but_first,       ///< all but the first of every four
    listed,              ///< none
};

class Composer;
struct ConfigParts;

struct ModelType {
    std::string_view name;        ///< model_type
    std::string_view class_name;  ///< of "architectures", where model_type is absent
    bool layer_norm = false;
    bool gated = true;
    bool learned_positions = false;
    std::int64_t unused_positions = 0;  ///< rows of the table of positions before the first that is used
    BiasRule biases = BiasRule::attention;
    std::string_view attention_bias_field = "attention_bias";
    std::string_view mlp_bias_field = "mlp_bias";
    WindowRule windows = WindowRule::none;
    bool qk_norm = false;        ///< always, on each head
    bool qk_norm_width = false;  ///< always, over all heads
    bool moe = false;            ///< fields of experts count
    bool router_bias = false;
    bool sinks = false;
    bool shared_gate = false;
    bool sigmoid_router = false;
    bool expert_bias = false;
    bool llama4 = false;               ///< fields and layers of its own
    bool never_tied = false;           ///< embeddings and output layer are two tables, whatever a file states
    bool rotary_interleaved = false;   ///< rotary positions turn neighbours, unless rope_interleave says no
    bool head_size_rounds = false;     ///< without head_dim a head has hidden / heads values, rounded down (its own defaults do not divide)
    bool indexed = false;              ///< an indexer chooses the keys of its latent attention
    bool multi_query = false;          ///< one head for keys and values with multi_query
    std::string_view defaults = "{}";  ///< JSON: fields and their class defaults
    /// Puts the layers together where the fields of ModelSpec do not describe them (formats/hugging_face/composer.hpp); nullptr: they do.
    void (*compose)(Composer&) = nullptr;
    bool (*composed)(ConfigParts&) = nullptr;  ///< with compose: whether the file needs it; nullptr: each does
    /// Reads the type's differences from a llama: norms, order, multipliers (formats/hugging_face/arrangement.hpp).
    void (*arrange)(ConfigParts&) = nullptr;
    std::string_view left_out = {};  ///< features of its network that no layer here describes; nothing of them has weights
};

/// The table, llama first.
[[nodiscard]] std::span<const ModelType> model_types();

/// The row of a model_type, also under the names that larger models give it ("qwen2_vl_text"); nullptr: not known.
[[nodiscard]] const ModelType* find_model_type(std::string_view name);
/// The row of a class of "architectures" ("LlamaForCausalLM"); nullptr: not known.
[[nodiscard]] const ModelType* find_model_class(std::string_view class_name);
/// The row that --assume llama reads unknown types with: llama's, with experts, windows and QK-norm where fields state them.
[[nodiscard]] const ModelType& assumed_model_type();

/// All names, in the order of the table.
[[nodiscard]] std::vector<std::string> known_model_types();

/// Describes a type that is no decoder trained on next tokens, as the end of a sentence that begins with the type; "" for all others. Their
/// configs carry the same size fields with another meaning.
[[nodiscard]] std::string_view other_kind(std::string_view name);

/// The type of the language model inside a multimodal model whose file does not name it; "": not known.
[[nodiscard]] std::string_view text_type_of(std::string_view multimodal);
/// Returns true for types of multimodal models that a table here names.
[[nodiscard]] bool is_known_around_text(std::string_view multimodal);
/// Returns true if a multimodal class shares embeddings and output layer when its file does not say.
[[nodiscard]] bool ties_by_default(std::string_view multimodal);
/// True if it shares them when its text part states so and its own field does not.
[[nodiscard]] bool ties_as_its_text_part(std::string_view multimodal);
/// True if its own field alone decides, whatever its text part states.
[[nodiscard]] bool ties_by_itself(std::string_view multimodal);

}  // namespace mgplan::formats
