#pragma once
// One layer as one typed value, and a model as a list of them.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "plan/layers/adapters.hpp"
#include "plan/layers/attention.hpp"
#include "plan/layers/compressed_attention.hpp"
#include "plan/layers/gated_delta_net.hpp"
#include "plan/layers/gated_linear_recurrence.hpp"
#include "plan/layers/gemma_attention.hpp"
#include "plan/layers/kimi_delta_attention.hpp"
#include "plan/layers/latent_attention.hpp"
#include "plan/layers/lightning_attention.hpp"
#include "plan/layers/mamba.hpp"
#include "plan/layers/mamba2.hpp"
#include "plan/layers/mixture.hpp"
#include "plan/layers/mlp.hpp"
#include "plan/layers/short_convolution.hpp"

namespace mgplan {

using Mixer =
    std::variant<Attention, LatentAttention, CompressedAttention, GemmaAttention, Gemma3nLayer, Mamba, Mamba2, AttentionBesideMamba2,
                 SharedBlockMamba2, GatedDeltaNet, KimiDeltaAttention, LightningAttention, ShortConvolution, GatedLinearRecurrence>;
using FeedForward = std::variant<Mlp, Mixture>;

/// Factors of a residual path that carries what the norm in front of a half gives, not what came into it (MiniMax-01, arXiv 2501.08313
/// section 2; transformers' modeling_minimax.py, MiniMaxDecoderLayer).
struct NormedPath {
    PathFactors mixer;
    PathFactors feed_forward;
    bool operator==(const NormedPath&) const = default;
    MGPLAN_MEMBERS(mixer, feed_forward)
};

/// Addition of a layer's halves to the residual stream.
struct Residual {
    double multiplier = 1;  ///< of what both halves add (Granite)
    double dropout = 0;
    std::optional<NormedPath> normed_path;
    std::optional<HyperConnections> hyper_connections;  ///< nothing: one residual stream
    bool operator==(const Residual&) const = default;
    MGPLAN_MEMBERS(multiplier, dropout, normed_path, hyper_connections)
};

/// The type of a layer's GEMMs: the training's, or bf16 where those of other layers are quantised.
enum class LayerPrecision : std::uint8_t { of_training, bf16 };
constexpr auto words_of(LayerPrecision /*type*/) {
    return std::array<std::string_view, 2>{"of_training", "bf16"};
}

/// One kind of decoder layer. Either half may be missing.
struct Layer {
    Norms norms;
    std::optional<Mixer> mixer;
    std::optional<FeedForward> feed_forward;
    std::int64_t window = 0;  ///< tokens that a query sees, its own and those before; 0: all before
    Residual residual;
    LayerPrecision precision = LayerPrecision::of_training;
    std::optional<Adapters> adapters;  ///< trained in place of all else
    /// A layer that no kind describes is counted and nothing else: its tensors, in place of all the rest.
    std::vector<CountedTensor> counted;
    bool operator==(const Layer&) const = default;
    MGPLAN_MEMBERS(norms, mixer, feed_forward, window, residual, precision, adapters, counted)
};

/// A layer's mixer, or feed-forward, of this kind; nullptr if it is of another or missing.
template <class Kind>
const Kind* mixer_as(const Layer& layer) {
    return layer.mixer ? std::get_if<Kind>(&*layer.mixer) : nullptr;
}
template <class Kind>
const Kind* feed_forward_as(const Layer& layer) {
    return layer.feed_forward ? std::get_if<Kind>(&*layer.feed_forward) : nullptr;
}

struct Embedding {
    std::int64_t vocab = 0;            ///< unpadded
    std::int64_t vocab_divisor = 128;  ///< Megatron-LM's --make-vocab-size-divisible-by
    std::int64_t padded_rows = 0;      ///< rows over all tp ranks where they are given; 0: vocab is rounded up
    std::int64_t word_width = 0;       ///< of the table, with maps to and from the hidden size (OPT-350m); 0: the hidden size
    std::int64_t learned_positions = 0;
    std::int64_t token_types = 0;
    bool norm = false;  ///< after the embedding, like the final norm (BLOOM)
    double multiplier = 1;
    double dropout = 0;
    bool operator==(const Embedding&) const = default;
    MGPLAN_MEMBERS(vocab, vocab_divisor, padded_rows, word_width, learned_positions, token_types, norm, multiplier, dropout)
};

struct Head {
    Norm norm;  ///< after the last layer
    bool tied = false;
    bool bias = false;
    /// Rows of a head that scores texts or tokens (…ForSequenceClassification); 0: none (…Model); nothing: the vocabulary.
    std::optional<std::int64_t> labels;
    double logit_multiplier = 1;
    double logit_softcap = 0;
    bool operator==(const Head&) const = default;
    MGPLAN_MEMBERS(norm, tied, bias, labels, logit_multiplier, logit_softcap)
};

/// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 section 2.2).
struct Prediction {
    std::int64_t depths = 0;
    bool repeated = false;     ///< one layer's weights for all depths (Megatron-LM's --mtp-use-repeated-layer)
    double loss_factor = 0.1;  ///< weight of the depths' mean loss
    std::uint16_t kind = 0;    ///< of its decoder layer, in Model::kinds
    bool operator==(const Prediction&) const = default;
    MGPLAN_MEMBERS(depths, repeated, loss_factor, kind)
};

/// One model. No value that belongs to a layer is outside of its Layer.
struct Model {
    std::string name;
    std::string source;  ///< of the numbers
    std::string type;    ///< Hugging Face's model_type
    std::string assumed_architecture;
    std::vector<std::string> left_out;  ///< of the network, in words
    std::int64_t hidden = 0;
    std::int64_t max_positions = 0;
    double init_deviation = 0.02;
    Embedding embedding;
    std::vector<Layer> kinds;
    std::vector<std::uint16_t> kind_of_layer;
    std::optional<Prediction> prediction;
    Head head;
    /// Tensors next to the layers that are counted and nothing else; with counted layers the final norm is among them.
    std::vector<CountedTensor> counted;
    std::optional<std::int64_t> default_sequence;      ///< tokens
    std::optional<std::int64_t> default_global_batch;  ///< sequences
    bool operator==(const Model&) const = default;
    MGPLAN_MEMBERS(name, source, type, assumed_architecture, left_out, hidden, max_positions, init_deviation, embedding, kinds,
                   kind_of_layer, prediction, head, counted, default_sequence, default_global_batch)
};

/// Collects layers as kinds: equal ones are one, in the order in which they first occur.
class LayerKindIndex {
public:
    explicit LayerKindIndex(std::vector<Layer>& kinds) : kinds_(kinds) {}
    /// The number of a layer's kind, which is added where it is new.
    std::uint16_t index_of(const Layer& layer);

private:
    std::vector<Layer>& kinds_;
    std::unordered_map<Layer, std::uint16_t, MemberHash> known_;
};

/// The tensors of a layer, in the order in which Megatron-core registers its modules (with norms inside the linear layer that follows them,
/// as Transformer Engine has them).
[[nodiscard]] std::vector<LayerTensor> tensors(const Layer& layer, std::int64_t hidden);

/// The groups of tensors next to the layers, each in the order of its modules.
enum class ModelPart : std::uint8_t {
    embedding,         ///< tables, and maps of words that are not as wide as layers
    shared_by_layers,  ///< blocks, inputs and streams that layers read in front of them
    stream_end,        ///< brings residual streams together
    final_norm,
    output,
    output_bias,
    prediction_start,  ///< of one depth of multi-token prediction, in front of its decoder layer
    prediction_end,
};

/// `rows`: of the embedding's table of words, or of the output layer.
[[nodiscard]] std::vector<LayerTensor> tensors(const Model& model, ModelPart part, std::int64_t rows = 0);

/// Parameters of a whole model as published totals count them: unpadded vocabulary, without multi-token prediction, one tied embedding.
struct ModelCount {
    std::int64_t all = 0;
    std::int64_t active = 0;  ///< that one token uses
    bool operator==(const ModelCount&) const = default;
};
[[nodiscard]] ModelCount count_parameters(const Model& model);

}  // namespace mgplan
