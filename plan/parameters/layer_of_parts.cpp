// Typed layers of the parts that state them.

#include <algorithm>
#include <utility>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/member_parts.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

// Halves that parts state. Members that are no sizes of the part follow from the model. Each returns false where no layer has such sizes.

Rotary rotary_of_all(const ModelSpec& spec) {
    return rotary_of(spec, 0).value_or(Rotary{});
}

/// False if the part names no activation.
bool read_activation(Activation& activation, const PartSizes& s) {
    const std::int64_t stated = s["activation"];
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    activation = static_cast<Activation>(stated - 1);
    return true;
}

bool has_rms_norms(const ModelSpec& spec) {
    return spec.normalization == Normalization::rms_norm;
}

bool read(Attention& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t number) {
    if (s["qk_norm"] == 2 || s["qk_norm"] > 3 || s["positions"] < 1 || s["positions"] > 2) return false;
    mixer = attention_of(spec, number);
    read_part(mixer, s);
    mixer.qk_norm = static_cast<QkNorm>(s["qk_norm"]);
    if (s["positions"] == 1) mixer.rotary.reset();
    return mixer.heads % mixer.kv_heads == 0;
}

/// Its sizes are in MlaSpec too, together with values that no size of the part holds.
bool read(LatentAttention& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t number) {
    if (!spec.mla || s["output_bias"] != 0) return false;
    mixer = latent_attention_of(spec, number);
    mixer.heads = s["heads"];
    mixer.latent_norms = true;
    if (spec.position == PositionEmbedding::none) mixer.rotary.reset();
    return true;
}

bool read(GemmaAttention& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    mixer.rotary = rotary_of_all(spec);
    return mixer.heads % mixer.kv_heads == 0 && mixer.head_dim % 2 == 0 && has_rms_norms(spec) &&
           spec.position == PositionEmbedding::rope && (mixer.layer_input_width == 0) == (mixer.layer_input_rows == 0);
}

bool read(Gemma3nLayer& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t number) {
    mixer.mlp = mlp_of(spec);
    mixer.mlp.gated = true;
    mixer.mlp.bias = false;
    if (!read(mixer.attention, s, spec, number) || !read_activation(mixer.mlp.activation, s)) return false;
    read_part(mixer, s);
    return mixer.streams > 1 && mixer.streams <= ModelLimits::residual_streams && mixer.mlp_zero_share < 1 &&
           mixer.mlp.activation != Activation::xielu;
}

bool read(CompressedAttention& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    mixer.rotary = rotary_of_all(spec);
    const bool compresses = mixer.compression_rate > 0, indexed = mixer.index_heads > 0;
    return has_rms_norms(spec) && spec.position == PositionEmbedding::rope && s["window"] > 0 && mixer.rotary_dim % 2 == 0 &&
           mixer.rotary_dim <= mixer.head_dim && mixer.heads * mixer.head_dim % mixer.output_groups == 0 &&
           s["overlaps"] <= (compresses ? 1 : 0) && indexed == (mixer.index_top_k > 0) && (!indexed || compresses) &&
           (!indexed || (mixer.overlaps && mixer.index_head_dim >= std::max<std::int64_t>(1, mixer.rotary_dim)));
}

bool read(Mamba& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    return s["inner_norms"] <= 2 && has_rms_norms(spec);
}

/// Megatron-core's mixer has neither biases of its projections nor a convolution without one (ssm/mamba_mixer.py), nor has this one.
bool divides(const Mamba2& mixer) {
    return mixer.inner_width % mixer.heads == 0 && mixer.heads % mixer.groups == 0;
}

bool read(Mamba2& mixer, const PartSizes& s, const ModelSpec& /*spec*/, std::int64_t /*number*/) {
    read_part(mixer, s);
    return divides(mixer);
}

bool read(AttentionBesideMamba2& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    mixer.attention = attention_of(spec, 0);
    read_part(mixer, s);
    for (const auto& [field, member] : kBesideMultipliers) mixer.*member = spec.branch_multipliers.*field;
    return divides(mixer.mamba2) && mixer.attention.heads % mixer.attention.kv_heads == 0;
}

bool read(SharedBlockMamba2& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    const SharedBlock& block = mixer.block;
    const bool turns = s["positions"] == 2;
    if (turns) mixer.block.rotary = rotary_of_all(spec);
    // An adapter of keys is as wide as that of queries.
    const bool alike = block.kv_heads == block.query_heads && block.query_heads * block.head_dim == 2 * spec.hidden;
    return block.query_heads % block.kv_heads == 0 && has_rms_norms(spec) && s["positions"] <= 2 && (!turns || block.head_dim % 2 == 0) &&
           (!mixer.adapts_attention || alike) && divides(mixer.mamba2) && read_activation(mixer.block.activation, s) &&
           block.activation != Activation::xielu;
}

bool read(GatedDeltaNet& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    mixer.norm_epsilon = spec.state_norm_epsilon;
    return mixer.value_heads % mixer.key_heads == 0 && has_rms_norms(spec);
}

bool read(GatedLinearRecurrence& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    return mixer.width % mixer.heads == 0 && has_rms_norms(spec);
}

bool read(ShortConvolution& mixer, const PartSizes& s, const ModelSpec& /*spec*/, std::int64_t /*number*/) {
    read_part(mixer, s);
    return true;
}

/// Kimi delta attention and lightning attention.
template <class Kind>
bool read(Kind& mixer, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    read_part(mixer, s);
    return has_rms_norms(spec);
}

bool read(Mlp& mlp, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    mlp = mlp_of(spec);
    mlp.width = s["width"];
    mlp.gated = s["gated"] != 0;
    mlp.bias = s["bias"] != 0;
    // A bias of the second product would miss the MLP's multiplier, which comes before it; and without a gate there is none to scale.
    if ((mlp.output_multiplier != 1 && mlp.bias) || (mlp.gate_multiplier != 1 && !mlp.gated)) return false;
    // xIELU has no gate.
    return read_activation(mlp.activation, s) && !(mlp.gated && mlp.activation == Activation::xielu);
}

/// The part describes an MoE layer, and MoeSpec its values that no size of the part holds (scores, balancing).
bool read(Mixture& mixture, const PartSizes& s, const ModelSpec& spec, std::int64_t /*number*/) {
    if (!spec.moe || (spec.moe->branch_norms && spec.moe->shared_ffn == 0)) return false;
    mixture = mixture_of(spec);
    mixture.gated = s["gated"] != 0;
    mixture.bias = s["bias"] != 0;
    return read_activation(mixture.activation, s) && mixture.activation != Activation::xielu;  // its trained values belong to one MLP
}

template <class Kind, class Half>
bool read_half(const LayerPart& part, const ModelSpec& spec, std::int64_t number, std::optional<Half>& half) {
    Kind kind;
    if (!read(kind, stated_sizes(part, spec.hidden), spec, number)) return false;
    half = std::move(kind);
    return true;
}

/// Reads the mixer of the alternative whose name a part has.
template <std::size_t kAlternative = 0>
bool read_mixer(const LayerPart& part, const ModelSpec& spec, std::int64_t number, std::optional<Mixer>& mixer) {
    if constexpr (kAlternative < std::variant_size_v<Mixer>) {
        using Kind = std::variant_alternative_t<kAlternative, Mixer>;
        if (part.kind == Kind::kKind) return read_half<Kind>(part, spec, number, mixer);
        return read_mixer<kAlternative + 1>(part, spec, number, mixer);
    } else {
        return false;
    }
}

/// The window that a part states; 0: none.
std::int64_t window_of_part(const LayerPart& part) {
    return stated_sizes(part, 0).has("window") ? part_size(part, "window") : 0;
}

}  // namespace

std::optional<Layer> stated_layer(const ModelSpec& spec, const LayerComposition& composition, std::int64_t number) {
    if (composition.parts.empty() || traits_of(composition.parts.front()).role != PartRole::norm) return std::nullopt;
    Layer layer = frame_of(spec);
    std::int64_t choosing_words = 0;
    for (const LayerPart& part : composition.parts) {
        const PartRole role = traits_of(part).role;
        if (role == PartRole::mixer && !layer.mixer) {
            if (!read_mixer(part, spec, number, layer.mixer)) return std::nullopt;
            layer.window = carries_state(*layer.mixer) ? window_of_part(part) : spec.window_of_layer(number);
        } else if (role == PartRole::mixture && !layer.feed_forward) {
            if (!read_half<Mixture>(part, spec, number, layer.feed_forward)) return std::nullopt;
        } else if (role == PartRole::feed_forward && !layer.feed_forward) {  // a second one is the shared experts
            if (!read_half<Mlp>(part, spec, number, layer.feed_forward)) return std::nullopt;
        } else if (role == PartRole::word_choice) {
            choosing_words = part_size(part, "words");
        }
    }
    if (!layer.mixer && !layer.feed_forward) return std::nullopt;
    if (auto* const mixture = layer.feed_forward ? std::get_if<Mixture>(&*layer.feed_forward) : nullptr)
        mixture->choosing_words = choosing_words;
    // Lightning attention has factors of the path of its own.
    if (layer.residual.normed_path && mixer_as<LightningAttention>(layer) != nullptr)
        layer.residual.normed_path->mixer = spec.normed_residual->state;
    const std::int64_t behind = part_size(composition.parts.front(), "behind");
    if (behind != 0) {
        layer.norms.before = behind == 2;
        layer.norms.after = true;
    }
    return layer;
}

Layer typed_layer(const ModelSpec& spec, const LayerComposition& composition, std::int64_t number) {
    std::optional<Layer> layer = stated_layer(spec, composition, number);
    MGPLAN_ASSERT(layer.has_value(), "layers here compute this kind of layer: " + composition.name);
    return *std::move(layer);
}

}  // namespace mgplan
