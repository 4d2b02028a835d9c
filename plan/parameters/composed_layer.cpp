#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/model_adapter.hpp"

namespace mgplan {
namespace {

// True if layers here compute a half of these sizes. `layer`: that holds it.

bool has_rms_norms(const Layer& layer) {
    return layer.norms.norm.kind == Normalization::rms_norm;
}

bool computes(const Attention& a, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    return a.heads % a.kv_heads == 0 && a.qk_norm != QkNorm::per_head;
}

bool computes(const LatentAttention& a, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    return !a.output_bias;
}

bool computes(const GemmaAttention& a, const Layer& layer, const ModelSpec& spec) {
    return a.heads % a.kv_heads == 0 && a.head_dim % 2 == 0 && has_rms_norms(layer) && spec.position == PositionEmbedding::rope &&
           (a.layer_input_width == 0) == (a.layer_input_rows == 0);
}

bool computes(const Gemma3nLayer& own, const Layer& layer, const ModelSpec& spec) {
    return computes(own.attention, layer, spec) && own.streams > 1 && own.streams <= ModelLimits::residual_streams &&
           own.mlp_zero_share < 1 && own.mlp.activation != Activation::xielu;
}

bool computes(const CompressedAttention& a, const Layer& layer, const ModelSpec& spec) {
    const bool compresses = a.compression_rate > 0, indexed = a.index_heads > 0;
    return has_rms_norms(layer) && spec.position == PositionEmbedding::rope && layer.window > 0 && a.rotary_dim % 2 == 0 &&
           a.rotary_dim <= a.head_dim && a.heads * a.head_dim % a.output_groups == 0 && (compresses || !a.overlaps) &&
           indexed == (a.index_top_k > 0) && (!indexed || compresses) &&
           (!indexed || (a.overlaps && a.index_head_dim >= std::max<std::int64_t>(1, a.rotary_dim)));
}

/// Megatron-core's mixer has neither biases of its projections nor a convolution without one (ssm/mamba_mixer.py), nor has this one.
bool computes(const Mamba2& mamba2, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    return mamba2.inner_width % mamba2.heads == 0 && mamba2.heads % mamba2.groups == 0;
}

bool computes(const AttentionBesideMamba2& mixer, const Layer& layer, const ModelSpec& spec) {
    return computes(mixer.mamba2, layer, spec) && mixer.attention.heads % mixer.attention.kv_heads == 0;
}

bool computes(const SharedBlockMamba2& mixer, const Layer& layer, const ModelSpec& spec) {
    const SharedBlock& block = mixer.block;
    // An adapter of keys is as wide as that of queries.
    const bool alike = block.kv_heads == block.query_heads && block.query_heads * block.head_dim == 2 * spec.hidden;
    return block.query_heads % block.kv_heads == 0 && has_rms_norms(layer) && (!block.rotary || block.head_dim % 2 == 0) &&
           (!mixer.adapts_attention || alike) && computes(mixer.mamba2, layer, spec) && block.activation != Activation::xielu;
}

bool computes(const GatedDeltaNet& net, const Layer& layer, const ModelSpec& /*spec*/) {
    return net.value_heads % net.key_heads == 0 && has_rms_norms(layer);
}

bool computes(const GatedLinearRecurrence& recurrence, const Layer& layer, const ModelSpec& /*spec*/) {
    return recurrence.width % recurrence.heads == 0 && has_rms_norms(layer);
}

bool computes(const ShortConvolution& /*convolution*/, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    return true;
}

/// Mamba, Kimi delta attention and lightning attention.
template <class Kind>
bool computes(const Kind& /*mixer*/, const Layer& layer, const ModelSpec& /*spec*/) {
    return has_rms_norms(layer);
}

bool computes(const Mlp& mlp, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    // A bias of the second product would miss the MLP's multiplier, which comes before it; and without a gate there is none to scale.
    if ((mlp.output_multiplier != 1 && mlp.bias) || (mlp.gate_multiplier != 1 && !mlp.gated)) return false;
    return !(mlp.gated && mlp.activation == Activation::xielu);  // which has no gate
}

bool computes(const Mixture& mixture, const Layer& /*layer*/, const ModelSpec& /*spec*/) {
    if (mixture.branch_norms && mixture.shared_ffn == 0) return false;
    return mixture.activation != Activation::xielu;  // its trained values belong to one MLP
}

/// Mixers that fields do not describe have a norm after them if their kind has one, and then also one in front.
bool has_norms_of_kind(const Layer& layer) {
    if (!layer.mixer || !carries_state(*layer.mixer)) return true;
    const bool whole = std::holds_alternative<Gemma3nLayer>(*layer.mixer);
    const bool around = whole || std::holds_alternative<GemmaAttention>(*layer.mixer);
    return layer.norms.after == around && (!around || layer.norms.before) && !(whole && layer.feed_forward);
}

/// True if layers with inputs of their own state alike what they read, and if streams that no maps mix pass layers of Gemma 3n alone.
bool read_alike(const std::vector<NamedLayer>& kinds) {
    std::set<std::pair<std::int64_t, std::int64_t>> inputs;  // streams, width of the layers' own inputs
    bool others = false;
    for (const NamedLayer& kind : kinds) {
        const auto* const gemma3n = mixer_as<Gemma3nLayer>(kind.layer);
        if (gemma3n != nullptr) inputs.emplace(gemma3n->streams, gemma3n->attention.layer_input_width);
        if (const auto* const gemma = mixer_as<GemmaAttention>(kind.layer)) inputs.emplace(1, gemma->layer_input_width);
        others |= gemma3n == nullptr;
    }
    return inputs.size() <= 1 && (!others || inputs.empty() || inputs.begin()->first == 1);
}

/// True for biases of experts that are counted and trained, outside layers that fields describe. Only counting reads the number of MoE
/// layers; a part of the model may have none.
bool is_trained_bias(const CountedTensor& tensor, const ModelSpec& model) {
    if (tensor.name != kChoiceBias) return false;
    return !model.moe || (model.moe->expert_bias && tensor.shape.front() == model.moe->experts);
}

}  // namespace

std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model) {
    // As its recipes have them (Megatron-LM's branch dev at d48bd6be, examples/moe_recipes).
    static constexpr std::array kCompressed{EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj},
                                            EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::mhc},
                                            EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::moe_act}};
    if (has_mixer(model, [](const Mixer& mixer) { return std::holds_alternative<CompressedAttention>(mixer); })) return kCompressed;
    return {};
}

EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model) {
    const auto published = published_recompute_sets(model);
    return published.empty() ? EnumSet<RecomputeModule>{RecomputeModule::core_attn} : published.front();
}

bool is_computed(const ModelSpec& model, const NamedLayer& kind) {
    if (!kind.layer.mixer && !kind.layer.feed_forward) return false;  // counted
    const Layer layer = with_fields(model, kind.layer, 0);
    const auto computed = [&](const auto& half) { return computes(half, layer, model); };
    return has_norms_of_kind(layer) && (!layer.mixer || std::visit(computed, *layer.mixer)) &&
           (!layer.feed_forward || std::visit(computed, *layer.feed_forward));
}

bool has_computed_kinds(const ModelSpec& model) {
    return model.counted.empty() && read_alike(model.kinds) &&
           std::all_of(model.kinds.begin(), model.kinds.end(), [&](const NamedLayer& kind) { return is_computed(model, kind); });
}

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0 || model.word_width != 0) return false;
    if (model.kinds.empty())
        return std::all_of(model.counted.begin(), model.counted.end(),
                           [&](const CountedTensor& one) { return is_trained_bias(one, model); });
    // The last stage has no blocks and inputs that the first one computes for layers.
    const std::optional<Mixer>& predicts = model.kinds.at(model.kind_at(model.layers)).layer.mixer;
    return !(model.mtp_layers > 0 && predicts && reads_first_stage(*predicts)) && has_computed_kinds(model);
}

}  // namespace mgplan
