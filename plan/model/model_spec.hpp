#pragma once
// The trained model: the shape of one transformer language model. A plain value; formats/ makes it from users' files.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"

namespace mgplan {

enum class PositionEmbedding : std::uint8_t { none, learned, rope };
constexpr auto words_of(PositionEmbedding /*type*/) {
    return std::array<std::string_view, 3>{"none", "learned", "rope"};
}

/// Bounds of what is accepted; with them no count or byte sum of this project leaves 64 bits.
struct ModelLimits {
    static constexpr std::int64_t layers = 65'536;
    static constexpr std::int64_t mtp_layers = 64;
    static constexpr std::int64_t hidden = std::int64_t{1} << 20;
    static constexpr std::int64_t ffn = std::int64_t{1} << 24;
    static constexpr std::int64_t heads = 65'536;
    static constexpr std::int64_t head_dim = 65'536;
    static constexpr std::int64_t vocab = std::int64_t{1} << 26;
    static constexpr std::int64_t experts = 65'536;
    static constexpr std::int64_t positions = std::int64_t{1} << 27;  ///< also of sequences and batches
    static constexpr double parameters = 1e15;
    static constexpr double auxiliary_loss = 1e6;
    static constexpr double rotary_base = 1e15;
    static constexpr double mtp_loss_factor = 1e6;
    static constexpr double expert_bias_update_rate = 1e6;
    static constexpr double rotary_scaling = 1e6;  ///< each of its numbers
    static constexpr double routed_scaling = 1e6;
    static constexpr double init_deviation = 1e3;
    static constexpr std::size_t left_out = 64;  ///< entries
    static constexpr std::size_t layer_kinds = 64;
    static constexpr std::size_t parts = 64;  ///< in which files describe a kind of layer, or what is outside the layers
    static constexpr std::int64_t part_size = std::int64_t{1} << 40;  ///< each size of a part
    static constexpr double multiplier = 1e6;
    static constexpr std::int64_t residual_streams = 64;
    static constexpr std::int64_t sinkhorn_iterations = 10'000;
};

/// Multi-latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1). Widths in elements.
struct MlaSpec {
    std::int64_t q_lora_rank = 0;  ///< 0: queries are projected directly
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_nope_head_dim = 0;
    std::int64_t qk_rope_head_dim = 0;
    std::int64_t v_head_dim = 0;
    double norm_epsilon = 0;  ///< of the norms on the latents; 0: the model's
    /// Queries without a latent have one more norm, of the hidden size, in front of their projection. Published models have none;
    /// Megatron-LM adds it (as_built_by()).
    bool query_norm = false;
    /// The indexer that chooses the keys each query sees (DeepSeek-V3.2-Exp, section 2.1; Megatron-LM's --experimental-attention-variant
    /// dsa): heads of `index_head_dim` values, and the number of keys chosen. 0: every query sees all before it.
    std::int64_t index_heads = 0;
    std::int64_t index_head_dim = 0;
    std::int64_t index_top_k = 0;
    bool operator==(const MlaSpec&) const = default;
};

/// Mixture of experts. Widths in elements.
struct MoeSpec {
    std::int64_t experts = 0;
    std::int64_t top_k = 0;
    std::int64_t expert_ffn = 0;
    /// Width of what the routed experts take and give, between two maps from and to the hidden size (Nemotron 3; Megatron-LM's
    /// --moe-latent-size); 0: the hidden size, without maps.
    std::int64_t latent = 0;
    std::int64_t shared_ffn = 0;  ///< width of all shared experts together; 0: none
    bool shared_gate = false;     ///< a learned gate (h -> 1) on the shared expert (Qwen2-MoE)
    /// Branches with norms of their own (Gemma 4): the router and the experts read the layer's input, not the output of the norm in front
    /// of the shared experts, each through a norm; norms follow both branches, and a trained factor scales the weights of each expert.
    bool branch_norms = false;
    bool expert_bias = false;  ///< aux-loss-free balancing: a non-trained bias of `experts` values (DeepSeek-V3)
    bool router_bias = false;  ///< a trained router bias of `experts` values (gpt-oss)
    RouterScore score = RouterScore::softmax;
    TokenDispatcher dispatcher = TokenDispatcher::all_to_all;
    bool grouped_gemm = true;
    double auxiliary_loss = 0;  ///< coefficient of the load-balancing loss (Megatron-LM's --moe-aux-loss-coeff); 0: none
    /// The same of a loss within each sequence (DeepSeek-V2, arXiv 2405.04434 section 2.2.3; Megatron-LM's seq_aux_loss).
    double sequence_auxiliary_loss = 0;
    double capacity_factor = 0;  ///< 0: dropless
    bool pad_to_capacity = false;
    std::int64_t groups = 0;  ///< device-limited routing; 0: none
    std::int64_t group_top_k = 0;
    /// Largest scores of a group that count for its choice (DeepSeek-V2: 1); 0: top_k / group_top_k of them, as in Megatron-LM.
    std::int64_t group_scores = 0;
    double expert_bias_update_rate = 1e-3;  ///< Megatron-LM's --moe-router-bias-update-rate and its default
    /// Factor on the weights of the chosen experts (DeepSeek's routed_scaling_factor, --moe-router-topk-scaling-factor).
    double routed_scaling = 1;
    /// Weights of the chosen experts are made to sum to 1; else they are scores over all experts (norm_topk_prob: false;
    /// --moe-router-pre-softmax).
    bool normalize_top_k = true;
    bool operator==(const MoeSpec&) const = default;
};

/// One kind of layer of a model whose fields do not describe its layers.
struct NamedLayer {
    std::string name;  ///< for messages: "mamba2+moe"
    /// Values that no field states: halves and their sizes, norms in front and after, windows of mixers with a state along the
    /// sequence. All else is at its default, and typed_layer() (plan/parameters/model_adapter.hpp) adds what fields say. A layer that no
    /// kind describes has counted tensors alone.
    Layer layer;
    bool operator==(const NamedLayer&) const = default;
};

/// Factors of the outputs of a layer's branches, by which maximal-update parametrisation sets each matrix's rate (Falcon-H1,
/// modeling_falcon_h1.py). A matrix without a bias carries a factor of its input as well as one of its output, so each is listed once.
struct BranchMultipliers {
    double attention_output = 1;  ///< of attention in parallel with a state-space model: of the output of its output projection
    double state_output = 1;      ///< the same of the state-space model
    double state_gate = 1;        ///< of z, the first of the blocks that its input projection gives
    double state_input = 1;       ///< of x
    double state_write = 1;       ///< of B
    double state_read = 1;        ///< of C
    double state_step = 1;        ///< of the raw steps
    double mlp_gate = 1;          ///< of a gated MLP's gate, in front of the activation
    double mlp_output = 1;        ///< of what an MLP gives
    bool operator==(const BranchMultipliers&) const = default;
};

/// A residual path that carries what the norm in front of a half gives, not what came into it, with factors by kind of half (MiniMax-01,
/// arXiv 2501.08313 section 2; transformers' modeling_minimax.py, MiniMaxDecoderLayer).
struct NormedResidual {
    PathFactors attention{};
    PathFactors state{};  ///< mixers with a state along the sequence
    PathFactors mlp{};
    bool operator==(const NormedResidual&) const = default;
};

/// One model. Defaults describe a Llama-like layer; every reader of formats/ sets each field that its format has.
struct ModelSpec {
    std::string name;
    std::string source;  ///< where the numbers come from
    std::string type;    ///< Hugging Face's model_type, as it was read; empty: the source names none
    /// The type an unknown one was read as because --assume said so ("llama"); empty: nothing was assumed.
    std::string assumed_architecture;
    /// Features of the network that no field here describes, in words ("embeddings multiplied by 12"): none of them has weights that count.
    /// They are neither priced nor run nor exported, and all three report so.
    std::vector<std::string> left_out;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t ffn = 0;  ///< width of the dense MLP (before doubling for a gated one)
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  ///< = heads without grouped-query attention
    std::int64_t head_dim = 0;  ///< kv channels; of no meaning with MLA
    std::int64_t vocab = 0;     ///< unpadded
    /// Width of the table of words and of what the output layer reads, with a matrix to the hidden size and one from it (OPT-350m): such a
    /// model is counted and nothing else; 0: the hidden size.
    std::int64_t word_width = 0;
    std::int64_t max_positions = 0;
    Activation activation = Activation::silu;
    bool gated_mlp = true;  ///< SwiGLU and kin: the first MLP matrix is twice as wide
    Normalization normalization = Normalization::rms_norm;
    PositionEmbedding position = PositionEmbedding::rope;
    double rotary_fraction = 1.0;
    double rotary_base = 10000;  ///< of the angles ("rope theta")
    std::string rotary_scaling;  ///< how the angles are changed for longer sequences, by name ("yarn", "llama3"); empty: not at all
    RotaryScaling rotary_scaling_values;
    /// Rotary base of the layers with a sliding window (Gemma 3), which then have no rotary scaling; 0: that of all layers.
    double window_rotary_base = 0;
    std::vector<bool> rotary_layers;  ///< with rotary positions: the layers that have them (SmolLM3); empty: all
    /// Published weights of the type turn neighbours of a head (Cohere, GLM, DeepSeek), not its halves as here: the same network with the
    /// rows of queries and keys in another order.
    bool rotary_interleaved = false;
    LayerOrder order = LayerOrder::sequential;
    bool pre_norms = true;    ///< norms in front of attention and MLP
    bool post_norms = false;  ///< norms of what both give, in front of its addition to the residual stream (Gemma 2, OLMo 2)
    bool norm_bias = true;    ///< of LayerNorm: a bias besides the weight
    bool norm_weight = true;  ///< of LayerNorm: without one it has no bias either (OLMo 1)
    double norm_epsilon = 1e-5;
    double state_norm_epsilon = 0;  ///< of the norm of what gated delta nets give (OLMo hybrid); 0: the model's
    double init_deviation = 0.02;   ///< standard deviation of the weights at the start (initializer_range, --init-method-std)
    bool tied_embeddings = false;
    bool qkv_bias = false;
    bool attention_output_bias = false;
    bool mlp_bias = false;
    bool output_bias = false;            ///< of the output layer, or of the head of labels, a value for each row (Phi, GPT-J)
    bool qk_norm = false;                ///< norms on q and k of head_dim weights each (Qwen3); with MLA on the two latents
    bool qk_norm_full_width = false;     ///< with qk_norm: the weights span all heads (heads·head_dim and kv_heads·head_dim)
    bool qk_norm_per_head = false;       ///< with qk_norm: head_dim weights for each head (Cohere)
    bool qk_norm_behind_rotary = false;  ///< q and k are turned before their norms (Hunyuan)
    double qkv_clip = 0;                 ///< queries, keys and values are clipped at ± this (OLMo 1); 0: they stay
    bool attention_sinks = false;        ///< one trained logit per head (gpt-oss)
    /// Attention's output is multiplied by the sigmoid of a gate as wide as the queries, which the packed projection computes together with
    /// them (Qwen3-Next; Megatron-LM's --attention-output-gate).
    bool attention_output_gate = false;
    std::int64_t sliding_window = 0;  ///< places that a query sees, its own and those before; 0: all before
    /// With a sliding window: every n-th layer sees all (Megatron-LM's --window-attn-skip-freq; gpt-oss: 2); 0: none does.
    std::int64_t full_attention_every = 0;
    std::vector<bool>
        window_layers;  ///< with a sliding window: the layers that have it, in place of full_attention_every; empty: not listed
    double embedding_multiplier = 1;  ///< of the embeddings (Gemma: the square root of the hidden size)
    double residual_multiplier = 1;   ///< of what attention and MLP add to the residual stream (Granite)
    double logit_multiplier = 1;      ///< of the logits (Cohere; Granite: 1 / logits_scaling)
    double attention_multiplier = 0;  ///< of the attention scores; 0: 1 / sqrt(qk head size)
    BranchMultipliers branch_multipliers;
    std::optional<NormedResidual> normed_residual;
    std::optional<HyperConnections> hyper_connections;  ///< nothing: one residual stream
    double attention_softcap = 0;                       ///< attention scores become cap · tanh(score / cap) (Gemma 2); 0: they stay
    double logit_softcap = 0;                           ///< logits become cap · tanh(logit / cap) (Gemma 2); 0: they stay
    std::int64_t token_types = 0;                       ///< token-type embeddings; 0: none
    bool embedding_norm = false;                        ///< a norm of the embeddings, in front of the first layer (BLOOM)
    /// Rows of a head that scores texts or tokens in place of the output layer (…ForSequenceClassification); 0: nothing follows the last
    /// norm (…Model), so that the model is counted alone; nothing: the vocabulary.
    std::optional<std::int64_t> labels;
    std::int64_t mtp_layers = 0;       ///< multi-token-prediction layers after the decoder (DeepSeek-V3)
    bool mtp_repeated = false;         ///< one such layer's weights, used by all of them (Megatron-LM's --mtp-use-repeated-layer)
    double mtp_loss_factor = 0.1;      ///< weight of their mean loss (Megatron-LM's --mtp-loss-scaling-factor and its default)
    std::int64_t vocab_divisor = 128;  ///< Megatron-LM's --make-vocab-size-divisible-by
    /// Rows of the vocabulary over all tp ranks where they are given (Megatron-LM's --padded-vocab-size), whatever tp is, which has to
    /// divide them; no less than `vocab`. 0: padded_vocab() rounds up.
    std::int64_t padded_rows = 0;
    double attention_dropout = 0;
    double hidden_dropout = 0;
    std::optional<MlaSpec> mla;
    std::optional<MoeSpec> moe;
    std::vector<bool> moe_layers;  ///< size = layers when moe is set (true: the MLP is an MoE layer), else empty
    /// The kinds of layers where the fields above do not describe all layers; empty: they do. Where a kind has counted tensors, the model
    /// is counted and nothing else.
    std::vector<NamedLayer> kinds;
    std::vector<std::uint16_t> kind_of_layer;  ///< size = layers with kinds, else empty
    /// The kind of the decoder layer of each depth of multi-token prediction; nothing: that of the last layer.
    std::optional<std::uint16_t> kind_of_prediction;
    /// Tensors outside the layers that no field describes. Such a model is counted and nothing else, but for kChoiceBias. With kinds of
    /// which some are counted, the final norm and all that layers share are among them.
    std::vector<CountedTensor> counted;
    std::optional<Adapters> adapters;                  ///< of all layers: what is trained in place of all weights (LoRA)
    std::optional<std::int64_t> default_sequence;      ///< the preset's own sequence length (tokens)
    std::optional<std::int64_t> default_global_batch;  ///< the preset's own batch (sequences)

    bool operator==(const ModelSpec&) const = default;

    /// Layers of multi-token prediction whose weights `depths` of them need.
    [[nodiscard]] std::int64_t mtp_weights(std::int64_t depths) const { return mtp_repeated && depths > 1 ? 1 : depths; }
    /// True if a layer (from 0; of multi-token prediction from the number of layers on) has experts.
    [[nodiscard]] bool is_moe_layer(std::int64_t layer) const;
    /// The kind of one layer (from 0), of multi-token prediction from the number of layers on.
    [[nodiscard]] std::uint16_t kind_at(std::int64_t layer) const {
        if (layer >= layers && kind_of_prediction) return *kind_of_prediction;
        return kind_of_layer.at(static_cast<std::size_t>(layer < layers ? layer : layers - 1));
    }
    /// The window of one layer (from 0); 0: it sees all before.
    [[nodiscard]] std::int64_t window_of_layer(std::int64_t layer) const {
        // Layers of multi-token prediction are like the last one.
        if (!window_layers.empty())
            return window_layers[static_cast<std::size_t>(layer) < window_layers.size() ? static_cast<std::size_t>(layer)
                                                                                        : window_layers.size() - 1]
                       ? sliding_window
                       : 0;
        return full_attention_every > 0 && (layer + 1) % full_attention_every == 0 ? 0 : sliding_window;
    }
    /// Vocabulary rows held with tensor parallel size tp: `padded_rows`, or without them rounded up to a multiple of vocab_divisor·tp
    /// (Megatron-LM core/tokenizers/utils/build_tokenizer.py, vocab_size_with_padding).
    [[nodiscard]] std::int64_t padded_vocab(std::int64_t tp) const;
    /// Rows of the output layer held with tensor parallel size tp: those of the vocabulary, or the labels rounded up to a multiple of tp.
    [[nodiscard]] std::int64_t output_rows(std::int64_t tp) const;
    /// Query width of one head in elements (MLA: nope + rope).
    [[nodiscard]] std::int64_t qk_head_dim() const;
    /// Value width of one head in elements.
    [[nodiscard]] std::int64_t v_head_dim() const;
    /// Residual streams: those of hyper_connections, or of layers of Gemma 3n.
    [[nodiscard]] std::int64_t streams() const;
    /// Width of what goes from layer to layer and from stage to stage.
    [[nodiscard]] std::int64_t stream_width() const { return hidden * streams(); }
    /// Width of the rows that travel to experts and back.
    [[nodiscard]] std::int64_t routed_width() const { return moe && moe->latent > 0 ? moe->latent : hidden; }
};

/// Checks ranges and relations (every size positive and bounded, kv heads divide heads, top_k <= experts …) and throws
/// one ConfigError with all problems; `where` names the source in each message.
void validate(const ModelSpec& model, const std::string& where);

/// Features the spec carries that no layer computes, in words, for messages: "attention in chunks of 8,192 tokens". Their parameters are
/// counted; what of them a prediction's time holds, docs/models.md says.
[[nodiscard]] std::vector<std::string> features_not_computed(const ModelSpec& model);
/// Layers that are recorded on shapes, and so predicted, but computed by no device: training refuses them.
[[nodiscard]] std::vector<std::string> layers_known_of_shapes(const ModelSpec& model);
/// Those of them whose kernels nobody measured, so that their time is a lower bound from bytes and instructions (docs/models.md).
[[nodiscard]] std::vector<std::string> layers_timed_at_least(const ModelSpec& model);

}  // namespace mgplan
