#pragma once
// Puts the layers of a model together from parts (plan/parts/layer_parts.hpp), for types that the fields of ModelSpec do not describe.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hugging_face/hugging_face_layers.hpp"

namespace mgplan::formats {

using PartSizesGiven = std::map<std::string, std::int64_t>;
using Parts = std::vector<LayerPart>;

/// Fields of the config, parts, and the layers in their order. Sizes out of range become problems of the reader.
class Composer {
public:
    explicit Composer(ConfigParts& parts) : parts_(parts) {}

    [[nodiscard]] ConfigReader& config() { return parts_.config; }
    [[nodiscard]] ModelSpec& model() { return parts_.model; }
    [[nodiscard]] std::int64_t hidden() const { return parts_.model.hidden; }
    [[nodiscard]] std::int64_t layers() const { return parts_.model.layers; }
    /// A whole number that the file or its class states; without a fallback its absence is a problem.
    std::int64_t number(Aliases names);
    std::int64_t number_or(Aliases names, std::int64_t fallback);
    bool flag(Aliases names, bool fallback) { return parts_.config.boolean_or(names, fallback); }
    /// A list of words with an entry for each layer, or nothing; another length is a problem.
    std::vector<std::string> words_of_layers(std::string_view field);
    /// The same; a word that is none of `known` is a problem.
    std::vector<std::string> words_of_layers(std::string_view field, Aliases known);
    /// True if all words are among `known`; else a problem that names the first other one.
    bool knows_words(std::string_view field, const std::vector<std::string>& words, Aliases known);
    /// per_layer_config: fields by the layer's number, an object each; nullptr where the file has none for this layer.
    const nlohmann::ordered_json* config_of_layer(std::int64_t layer);
    /// layer_types, each of which is a mixer with a state or full attention; another word is a problem.
    std::vector<std::string> mixers_of_layers();
    /// True for each layer whose feed-forward has experts: mlp_layer_types, else from `first_sparse` on, every decoder_sparse_step-th, but
    /// mlp_only_layers.
    std::vector<bool> sparse_layers(std::int64_t first_sparse);

    [[nodiscard]] LayerPart norm(std::int64_t copies = 1) const;
    [[nodiscard]] LayerPart layer_norm(std::int64_t copies = 1) const;  ///< with a bias
    /// Heads as num_attention_heads, num_key_value_heads and head_dim say; `sizes` come on top.
    LayerPart attention(const PartSizesGiven& sizes = {});
    /// Latent attention as DeepSeek's fields say.
    LayerPart latent_attention();
    /// Mamba-2 by the fields of Bamba, Falcon-H1 and Granite; `inner` where the class has a field for it.
    LayerPart mamba2(std::int64_t inner, bool normed);
    LayerPart indexer();  ///< index_n_heads, index_head_dim
    [[nodiscard]] static LayerPart part(std::string_view kind, PartSizesGiven sizes) { return {std::string(kind), std::move(sizes)}; }
    [[nodiscard]] LayerPart mlp(std::int64_t width, bool gated = true, bool bias = false) const;
    [[nodiscard]] LayerPart experts(std::int64_t experts, std::int64_t top_k, std::int64_t width, bool gated = true) const;
    /// The same MLP or experts with the model's activation stated, without which they are counted and nothing else.
    [[nodiscard]] LayerPart activated(LayerPart part) const;
    [[nodiscard]] LayerPart values(std::int64_t count) const { return part("values", {{"count", count}}); }
    [[nodiscard]] LayerPart linear(std::int64_t in, std::int64_t out, bool bias = false, std::int64_t copies = 1) const;

    /// The activation of MLPs and experts; without it the model's default remains.
    void set_activation(Aliases fields, Activation fallback) { model().activation = read_activation(config(), fallback, fields); }
    /// Sets MoeSpec from the part and from fields of the type: router and balancing, shared experts.
    void describe_mixture(const LayerPart& experts, std::int64_t shared_width, bool shared_gate);
    /// Names the limits of Mamba-2's steps (time_step_limit) as left out where they limit anything.
    void leave_out_step_limits();

    void add_layer(const std::string& kind, Parts parts);  ///< the next one
    void add_beside(LayerPart part) { parts_.layers.outside.push_back(std::move(part)); }
    /// The norm after the last layer, which is a part outside them here: with a bias for LayerNorm.
    void add_final_norm();
    void without_final_norm() { has_final_norm_ = false; }  ///< it has no weight
    /// A sentence for the list of what was assumed.
    void assume(std::string what) { parts_.assumptions.push_back(std::move(what)); }
    void leave_out(std::string what) { parts_.model.left_out.push_back(std::move(what)); }

private:
    ConfigParts& parts_;
    bool has_final_norm_ = true;
    std::optional<std::map<std::int64_t, const nlohmann::ordered_json*>> by_layer_;  ///< set by the first call of config_of_layer()
};

/// A word of layer_types for a mixer with a state along the sequence.
[[nodiscard]] bool is_recurrent(const std::string& word);

/// Width of the latent that Mamba-1's steps come from, by this field; "auto": hidden / 16, rounded up.
[[nodiscard]] std::int64_t step_rank(Composer& composer, std::string_view field);

/// Appends the parts of several lists.
[[nodiscard]] Parts joined(std::initializer_list<Parts> lists);

/// Reads a config whose type has a rule that composes its layers (ModelType::compose).
void read_composed(ConfigParts& parts);

// Rules, by difference from a llama. Source of each: modeling_*.py and configuration_*.py of the type in transformers 5.23.0, or the code
// that is published with its weights.
void compose_gpt_neo(Composer& composer);
void compose_nanochat(Composer& composer);
void compose_persimmon(Composer& composer);
void compose_bitnet(Composer& composer);
void compose_diffllama(Composer& composer);
void compose_gemma3n(Composer& composer);
void compose_gemma4(Composer& composer);
void compose_xglm(Composer& composer);
void compose_doge(Composer& composer);
void compose_openai_gpt(Composer& composer);
void compose_mllama(Composer& composer);
void compose_voxtral_realtime(Composer& composer);
void compose_opt(Composer& composer);
/// True if words are of another width than layers, norms come after the additions, or none after the last layer (OPT-350m).
bool is_unlike_other_opt(ConfigParts& parts);

void compose_sparse_decoder(Composer& composer);
void compose_phimoe(Composer& composer);
void compose_indexed_latent(Composer& composer);
/// True for each layer with an indexer of its own; the others take over the choice of the last one before them.
std::vector<bool> layers_with_indexers(ConfigReader& config, std::int64_t layers);
/// True if layers share indexers or have biases, which no field of MlaSpec states.
bool shares_indexers(ConfigParts& parts);
void compose_mimo_flash(Composer& composer);

void compose_longcat_flash(Composer& composer);
void compose_deepseek_v4(Composer& composer);
void compose_minimax_m3(Composer& composer);
void compose_unlimited_ocr(Composer& composer);
void compose_axk1(Composer& composer);
void compose_hy_v4(Composer& composer);
void compose_cohere2_moe(Composer& composer);

void compose_axk2(Composer& composer);
void compose_jetmoe(Composer& composer);
void compose_bailing_hybrid(Composer& composer);
void compose_mistral_large4(Composer& composer);
void compose_dots3_note(Composer& composer);
void compose_inkling(Composer& composer);
void compose_ernie_vl(Composer& composer);
void compose_step35(Composer& composer);
void compose_zaya(Composer& composer);
void compose_glm5_next(Composer& composer);
void compose_inkling2(Composer& composer);
void compose_hrm_text(Composer& composer);
void compose_biased_latent(Composer& composer);
/// True if the projections to the latents have biases, which no field of MlaSpec states, or a file states that no experts are chosen.
bool has_latent_biases(ConfigParts& parts);

void compose_qwen4_exp(Composer& composer);
void compose_muse_spark(Composer& composer);
void compose_muse_glimmer(Composer& composer);
/// True if queries, keys and values have biases, and their gate has none.
bool has_attention_bias(ConfigParts& parts);
void compose_deepseek_ocr2(Composer& composer);
/// True if MLPs have biases, which routed experts have not, or no number of experts is chosen.
bool has_biased_experts_or_none_chosen(ConfigParts& parts);
void compose_zamba(Composer& composer);
void compose_modernbert_decoder(Composer& composer);
void compose_chameleon(Composer& composer);
void compose_kosmos(Composer& composer);
void compose_xlstm(Composer& composer);

void compose_mamba(Composer& composer);
void compose_mamba2(Composer& composer);
void compose_bamba(Composer& composer);
void compose_falcon_h1(Composer& composer);
void compose_granite_hybrid(Composer& composer);
void compose_jamba(Composer& composer);
void compose_nemotron_h(Composer& composer);
void compose_zamba2(Composer& composer);
void compose_delta_hybrid(Composer& composer);
void compose_olmo_hybrid(Composer& composer);
void compose_kimi_linear(Composer& composer);
void compose_lfm2(Composer& composer);
void compose_lfm3(Composer& composer);
void arrange_lfm2(ConfigParts& parts);
void compose_minimax(Composer& composer);
void compose_recurrent_gemma(Composer& composer);

}  // namespace mgplan::formats
