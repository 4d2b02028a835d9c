#pragma once
// Puts the layers of a model together, for types that the fields of ModelSpec do not describe: typed where layers here compute them, else
// as tensors that are counted.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hugging_face/hugging_face_layers.hpp"

namespace mgplan::formats {

/// Experts of which a token chooses some.
struct ExpertChoice {
    std::int64_t chosen = 0;
    std::int64_t all = 0;
    bool operator==(const ExpertChoice&) const = default;
};

/// A piece of a layer, or of what is outside the layers: its tensors, and what it is of a typed layer. A layer of which a piece is nothing
/// of a typed one is counted and nothing else.
struct LayerPiece {
    std::vector<CountedTensor> tensors;
    std::vector<ExpertChoice> choices;  ///< of its experts
    std::optional<Layer> typed;         ///< with a half, or norms

    LayerPiece() = default;
    /// Joins pieces in their order; empty ones are of any layer.
    LayerPiece(std::initializer_list<LayerPiece> pieces);
    bool operator==(const LayerPiece&) const = default;
    void add(const LayerPiece& next);
    /// A bias of each of these maps, which no typed layer has.
    void add_biases(std::initializer_list<std::string_view> maps);
};

/// Softmax attention that is counted and nothing else. Sizes of 0 are the model's, or for values that of keys; `in`: width of its input.
struct CountedAttention {
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0, in = 0;
    QkNorm qk_norm = QkNorm::none;
    bool qk_norm_bias = false, output_gate = false, sinks = false, qkv_bias = false, output_bias = false;
};

/// Experts that are counted and nothing else.
struct CountedExperts {
    std::int64_t experts = 0, top_k = 0, width = 0;
    bool gated = true, bias = false;
    std::int64_t in = 0;  ///< width of what they take and give; 0: the hidden size
    bool router = true, router_bias = false;
    std::int64_t zero_experts = 0;  ///< those that give back their input (LongCat-Flash), which the router scores like the others
    std::int64_t idle_first = 0;    ///< first matrices that a class holds and no token passes
    bool idle = false;              ///< no word passes any of them (ERNIE 4.5 VL's experts of pictures)
};

/// Fields of the config, pieces of layers, and the layers in their order. Sizes out of range become problems of the reader.
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
    /// The same from 1 on.
    std::int64_t size(Aliases names) { return config().integer(names, 1, ModelLimits::part_size); }
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

    // Pieces of typed layers.

    /// Norms in front of the halves, after them, or both; `copies`: all that the layer has.
    [[nodiscard]] LayerPiece norm(std::int64_t copies = 1, bool before = true, bool after = false) const;
    [[nodiscard]] LayerPiece mixer(const Mixer& mixer, std::int64_t window = 0) const;
    /// Attention by num_attention_heads, num_key_value_heads and head_dim. `biased`: queries, keys, values and the output.
    [[nodiscard]] Attention plain_attention(bool rotary, bool biased = false) const;
    /// Latent attention as DeepSeek's fields say; with attention_bias it is counted alone.
    LayerPiece latent_attention();
    GatedDeltaNet gated_delta_net();  ///< linear_*
    /// Mamba-2 by the fields of Bamba, Falcon-H1 and Granite; `inner` where the class has a field for it.
    Mamba2 mamba2_by_fields(std::int64_t inner, bool normed);
    /// Mamba-2, alone or within a larger mixer; without a bias of its convolution or with biases of its maps it is counted alone.
    [[nodiscard]] LayerPiece with_mamba2(const Mixer& mixer, bool conv_bias, bool proj_bias) const;
    LayerPiece short_convolution();  ///< conv_L_cache; with conv_bias it is counted alone
    [[nodiscard]] LayerPiece shared_block(const SharedBlock& block) const { return listed(block); }  ///< its own weights
    /// An MLP with the model's activation.
    [[nodiscard]] LayerPiece typed_mlp(std::int64_t width, bool gated = true, bool bias = false) const;
    /// Experts with the model's activation. The first ones set MoeSpec, from these sizes and from fields of the type: router and balancing;
    /// later ones of other sizes are counted alone.
    LayerPiece mixture(Mixture sizes);

    // Pieces that are counted and nothing else.

    [[nodiscard]] LayerPiece layer_norm(std::int64_t copies = 1) const { return norm_over(hidden(), true, copies); }
    [[nodiscard]] LayerPiece norm_over(std::int64_t width, bool biased = false, std::int64_t copies = 1,
                                       std::optional<Layer> typed = {}) const;
    [[nodiscard]] LayerPiece attention(CountedAttention sizes = {}) const;
    /// The same with the biases that attention_bias states.
    LayerPiece attention_by_fields(CountedAttention sizes = {}) {
        sizes.qkv_bias = sizes.output_bias = flag({"attention_bias"}, false);
        return attention(sizes);
    }
    LayerPiece indexer();  ///< index_n_heads, index_head_dim
    [[nodiscard]] LayerPiece mlp(std::int64_t width, bool gated = true, bool bias = false) const;
    [[nodiscard]] LayerPiece experts(const CountedExperts& sizes) const;
    [[nodiscard]] LayerPiece experts(std::int64_t experts, std::int64_t top_k, std::int64_t width, bool gated = true) const {
        return this->experts({.experts = experts, .top_k = top_k, .width = width, .gated = gated});
    }
    [[nodiscard]] LayerPiece values(std::int64_t count) const;
    [[nodiscard]] LayerPiece linear(std::int64_t in, std::int64_t out, bool bias = false, std::int64_t copies = 1) const;
    /// `read`: rows that one token reads of many; 0: the table counts whole, as embeddings do.
    [[nodiscard]] LayerPiece table(std::int64_t rows, std::int64_t width, std::int64_t read = 0) const;
    /// Maps from residual streams to weights that mix them, with biases and factors (hyper-connections, arXiv 2409.19606).
    [[nodiscard]] LayerPiece hyper_connection(std::int64_t streams, std::int64_t maps, std::int64_t scales, std::int64_t copies) const;

    /// The activation of MLPs and experts; without it the model's default remains.
    void set_activation(Aliases fields, Activation fallback) { model().activation = read_activation(config(), fallback, fields); }
    /// Names the limits of Mamba-2's steps (time_step_limit) as left out where they limit anything.
    void leave_out_step_limits();

    void add_layer(const std::string& kind, LayerPiece layer);  ///< the next one
    void add_equal_layers(const std::string& kind, const LayerPiece& layer) {
        for (std::int64_t number = 0; number < layers(); ++number) add_layer(kind, layer);
    }
    void add_beside(const LayerPiece& piece) { beside_.add(piece); }
    /// Tensors that typed layers read outside of them, and which are counted where the layers are.
    void add_read_by_layers(const LayerPiece& piece) { read_by_layers_.add(piece); }
    void without_final_norm() { has_final_norm_ = false; }  ///< it has no weight, or was added by add_beside()
    /// Sets ModelSpec::kinds and counted.
    void finish();
    /// A sentence for the list of what was assumed.
    void assume(std::string what) { parts_.assumptions.push_back(std::move(what)); }
    void leave_out(std::string what) { parts_.model.left_out.push_back(std::move(what)); }

private:
    /// The tensors of a typed half or block, without the norms of its layer.
    template <class Half>
    [[nodiscard]] LayerPiece listed(const Half& half) const {
        Norms norms;
        norms.before = false;
        std::vector<LayerTensor> tensors;
        TensorLister list(tensors, norms, hidden());
        list_tensors(half, list);
        LayerPiece piece;
        for (const LayerTensor& tensor : tensors)
            piece.tensors.push_back({tensor.name, tensor.shape, tensor.copies, tensor.copies_of_token});
        return piece;
    }

    struct Kind {
        std::string name;
        LayerPiece layer;
        bool operator==(const Kind&) const = default;
    };

    ConfigParts& parts_;
    std::vector<Kind> kinds_;
    LayerPiece beside_, read_by_layers_;
    bool has_final_norm_ = true;
    std::optional<std::map<std::int64_t, const nlohmann::ordered_json*>> by_layer_;  ///< set by the first call of config_of_layer()
};

/// A word of layer_types for a mixer with a state along the sequence.
[[nodiscard]] bool is_recurrent(const std::string& word);

/// Width of the latent that Mamba-1's steps come from, by this field; "auto": hidden / 16, rounded up.
[[nodiscard]] std::int64_t step_rank(Composer& composer, std::string_view field);

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
