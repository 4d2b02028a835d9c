#pragma once
// Every parameter of a model in module order: names, shapes, how they are divided, and exact counts.
// Planner and simulator sum this list, the runtime allocates it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/layout/layout.hpp"
#include "plan/layout/stage_split.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

/// One parameter tensor as one rank holds it.
struct Parameter {
    std::string name;                 ///< Megatron-core module path, e.g. "decoder.layers.3.self_attention.linear_qkv.weight"
    std::vector<std::int64_t> shape;  ///< of the rank's shard, elements
    std::optional<int> shard_axis;    ///< dimension divided over tp (etp for experts); nothing: replicated
    /// Equal blocks of the divided dimension of which each rank holds a share: 2 for gate and value of a gated MLP, else 1
    /// (Megatron-core's partition_stride).
    int shard_stride = 1;
    /// Rows of each block of the shard where its blocks are of unequal size (Megatron-core's partition_sizes); empty: shard_stride.
    std::vector<std::int64_t> shard_blocks;
    InitialValues initial = InitialValues::by_name;
    double initial_bound = 0;  ///< of InitialValues::by_taps and constant
    PartialGradient partial_gradient = PartialGradient::never;
    bool expert = false;            ///< of one of the experts
    bool expert_group = false;      ///< reduced over edp instead of dp·cp (ParallelSizes::separates_experts)
    std::int64_t local_expert = 0;  ///< of experts: its number on the rank, the one in the name
    bool shared_embedding = false;  ///< the tied word embedding, held by first and last stage when pp > 1
    bool embedding_copy = false;    ///< a copy of it after the first stage, which gradient norms do not count again
    bool trained = true;            ///< false: frozen, without gradient and optimizer state
    bool no_weight_decay = false;   ///< biases and one-dimensional norms
    /// Weights that linear layers multiply with, Transformer Engine's where it makes them (DtypeClass::gemm_weight): neither embeddings,
    /// output layer and router nor convolutions.
    bool linear_weight = false;
    [[nodiscard]] std::int64_t count() const;
};

/// The kinds of decoder layer a model has.
enum class LayerKind : std::uint8_t { dense, moe };

/// Element counts of one piece of the model on one rank.
struct ParameterCount {
    std::int64_t dense = 0;   ///< trained
    std::int64_t expert = 0;  ///< trained, of experts, wherever they are reduced
    std::int64_t frozen = 0;
    [[nodiscard]] std::int64_t trained() const { return dense + expert; }
    [[nodiscard]] std::int64_t total() const { return trained() + frozen; }
    ParameterCount& operator+=(const ParameterCount& other) {
        dense += other.dense;
        expert += other.expert;
        frozen += other.frozen;
        return *this;
    }
    bool operator==(const ParameterCount&) const = default;
};

/// True if the packed q, k, v projection divides over tp: by whole kv heads, or with tp a multiple of them by equal parts of one head's
/// group. Always true with MLA, which has no packed projection.
[[nodiscard]] bool packed_heads_divide(const ModelSpec& model, std::int64_t tp);
[[nodiscard]] bool packed_heads_divide(const Attention& attention, std::int64_t tp);

/// Parameters of one decoder layer (names under `prefix`) with tensor parallel size tp, ep and etp. Order of modules as
/// Megatron-core registers them: input_layernorm / linear_proj / linear_qkv (with the layer norm weights fused into
/// linear_qkv and linear_fc1 as Transformer Engine does), pre_mlp_layernorm, mlp (router, experts, shared_experts).
/// The packed q, k, v projection is divided evenly over tp, also when tp > kv_heads (docs/decisions/0004).
[[nodiscard]] std::vector<Parameter> layer_parameters(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep,
                                                      std::int64_t etp, const std::string& prefix);
[[nodiscard]] ParameterCount layer_parameter_count(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep,
                                                   std::int64_t etp);

/// The same of one decoder layer of the model by its number, whatever describes it.
[[nodiscard]] std::vector<Parameter> decoder_layer_parameters(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes,
                                                              const std::string& prefix);

[[nodiscard]] ParameterCount decoder_layer_parameter_count(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes);

/// One MTP layer: two norms, the 2h -> h projection, one decoder layer of the last kind, a final norm (DeepSeek-V3,
/// arXiv 2412.19437 section 2.2; Megatron-core transformer/multi_token_prediction.py).
[[nodiscard]] ParameterCount mtp_layer_parameter_count(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp);

/// Word (and position, token-type) embeddings with the padded vocabulary divided over tp.
[[nodiscard]] ParameterCount embedding_parameter_count(const ModelSpec& model, std::int64_t tp);

/// Final norm plus output layer; the output layer is counted here for untied embeddings, or when `copy_of_embedding`
/// says that the tied embedding's copy lives here (pp > 1).
[[nodiscard]] ParameterCount head_parameter_count(const ModelSpec& model, std::int64_t tp, bool copy_of_embedding);

/// The model with the layers that an engine builds. Megatron-LM's --qk-layernorm, which latents need for their norms, also normalises the
/// input of queries without a latent (core/transformer/mla_qk_norm_config.py, _resolve_mla_qk_layernorm).
[[nodiscard]] ModelSpec as_built_by(Engine engine, ModelSpec model);

/// True if an engine puts the decoder's final norm into this chunk. mgplan's has it where the loss is, Megatron-LM's GPT with multi-token
/// prediction after the last decoder layer (core/transformer/transformer_block.py, has_final_layernorm_in_this_stage).
[[nodiscard]] bool has_final_norm(const ModelSpec& model, Engine engine, const StageChunk& chunk);

/// The typed layers of one model chunk.
struct ChunkLayers {
    std::vector<Layer> decoders;
    std::optional<Layer> prediction;  ///< of each depth of multi-token prediction
};
[[nodiscard]] ChunkLayers chunk_layers(const ModelSpec& model, const StageChunk& chunk);

/// All parameters of one model chunk, in module order: embedding, decoder layers, final norm, MTP layers, output layer. The first form has
/// the final norm where the loss is.
[[nodiscard]] std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk);
[[nodiscard]] std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk,
                                                      bool final_norm);
[[nodiscard]] std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ChunkLayers& layers, const ParallelSizes& sizes,
                                                      const StageChunk& chunk, bool final_norm);

/// All parameters that pipeline rank `pp_rank` of a layout holds with an engine, chunk by chunk, in module order.
[[nodiscard]] std::vector<std::vector<Parameter>> stage_parameters(const ModelSpec& model, const Layout& layout, int pp_rank,
                                                                   Engine engine = Engine::mgplan);

/// Element count on one rank of pipeline rank `pp_rank` (ranks of one stage hold equally many).
[[nodiscard]] ParameterCount stage_parameter_count(const ModelSpec& model, const Layout& layout, int pp_rank);

/// Parameters of the whole model as published totals count them: unpadded vocabulary, MTP excluded, one tied embedding.
[[nodiscard]] std::int64_t total_parameters(const ModelSpec& model);

/// Parameters that one token uses: all but the experts, top_k experts of each MoE layer, and the shared ones.
[[nodiscard]] std::int64_t active_parameters(const ModelSpec& model);

}  // namespace mgplan
