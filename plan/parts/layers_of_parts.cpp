// Typed layers of the parts that state them.

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/member_fields.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parts/model_parts.hpp"
#include "plan/parts/typed_parts.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

// Halves that parts state. Members that are no sizes of the part follow from the model's fields. Each returns false where no typed layer
// says the same.

/// False if the part names no activation.
bool read_activation(Activation& activation, const LayerPart& part) {
    const std::int64_t stated = part_size(part, "activation");
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    activation = static_cast<Activation>(stated - 1);
    return true;
}

bool read(Attention& mixer, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mixer, part);
    if (part_size(part, "positions") == 2) mixer.rotary.emplace();
    mixer.qk_norm = static_cast<QkNorm>(part_size(part, "qk_norm"));
    return part_size(part, "qk_norm") <= 3 && part_size(part, "positions") <= 2;
}

/// Its sizes are in MlaSpec too, together with values that no size of the part holds.
bool read(LatentAttention& mixer, const LayerPart& part, const ModelSpec& spec) {
    mixer.heads = part_size(part, "heads");
    return spec.mla.has_value();
}

bool read(Gemma3nLayer& mixer, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mixer, part);
    read_sizes(mixer.attention, part);
    mixer.mlp.width = part_size(part, "width");
    mixer.mlp_zero_share = static_cast<double>(part_size(part, "cut_millionths")) / kMillion;
    return read_activation(mixer.mlp.activation, part);
}

bool read(Mamba& mixer, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mixer, part);
    return part_size(part, "inner_norms") <= 2;
}

bool read(AttentionBesideMamba2& mixer, const LayerPart& part, const ModelSpec& spec) {
    mixer.attention = attention_of(spec, 0);
    read_sizes(mixer.attention, part);
    mixer.attention.heads = part_size(part, "query_heads");
    read_sizes(mixer.mamba2, part);
    return true;
}

bool read(SharedBlockMamba2& mixer, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mixer, part);
    read_sizes(mixer.block, part);
    read_sizes(mixer.mamba2, part);
    if (part_size(part, "positions") == 2) mixer.block.rotary.emplace();
    return part_size(part, "positions") <= 2 && read_activation(mixer.block.activation, part);
}

template <class Kind>
bool read(Kind& mixer, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mixer, part);
    return true;
}

bool read(Mlp& mlp, const LayerPart& part, const ModelSpec& /*spec*/) {
    read_sizes(mlp, part);
    return read_activation(mlp.activation, part);
}

/// The part describes an MoE layer, and MoeSpec its values that no size of the part holds (scores, balancing).
bool read(Mixture& mixture, const LayerPart& part, const ModelSpec& spec) {
    mixture.gated = part_size(part, "gated") != 0;
    mixture.bias = part_size(part, "bias") != 0;
    return spec.moe && read_activation(mixture.activation, part);
}

template <class Kind, class Half>
bool read_half(const LayerPart& part, const ModelSpec& spec, std::optional<Half>& half) {
    Kind kind;
    if (!read(kind, part, spec)) return false;
    half = std::move(kind);
    return true;
}

/// Reads the mixer of the alternative whose name a part has.
template <std::size_t kAlternative = 0>
bool read_mixer(const LayerPart& part, const ModelSpec& spec, std::optional<Mixer>& mixer) {
    if constexpr (kAlternative < std::variant_size_v<Mixer>) {
        using Kind = std::variant_alternative_t<kAlternative, Mixer>;
        if (part.kind == Kind::kKind) return read_half<Kind>(part, spec, mixer);
        return read_mixer<kAlternative + 1>(part, spec, mixer);
    } else {
        return false;
    }
}

/// The kind of layer (NamedLayer::layer) that parts state, whether or not it has all of them.
std::optional<Layer> stated_layer(const ModelSpec& spec, const std::vector<LayerPart>& parts) {
    if (parts.empty() || role_of(parts.front()) != PartRole::norm) return std::nullopt;
    Layer layer = frame_of(spec);
    std::int64_t choosing_words = 0;
    for (const LayerPart& part : parts) {
        const PartRole role = role_of(part);
        if (role == PartRole::mixer && !layer.mixer) {
            if (!read_mixer(part, spec, layer.mixer)) return std::nullopt;
            if (has_size(part, "window")) layer.window = part_size(part, "window");
        } else if (role == PartRole::mixture && !layer.feed_forward) {
            if (!read_half<Mixture>(part, spec, layer.feed_forward)) return std::nullopt;
        } else if (role == PartRole::feed_forward && !layer.feed_forward) {  // a second one is the shared experts
            if (!read_half<Mlp>(part, spec, layer.feed_forward)) return std::nullopt;
        } else if (role == PartRole::word_choice) {
            choosing_words = part_size(part, "words");
        }
    }
    if (!layer.mixer && !layer.feed_forward) return std::nullopt;
    if (auto* const mixture = layer.feed_forward ? std::get_if<Mixture>(&*layer.feed_forward) : nullptr)
        mixture->choosing_words = choosing_words;
    const std::int64_t behind = part_size(parts.front(), "behind");
    if (behind != 0) {
        layer.norms.before = behind == 2;
        layer.norms.after = true;
    }
    return without_fields(layer);
}

/// A part with every size that it leaves to its fallback, but for sizes of which several values say the same.
struct ExplicitPart {
    const PartKind* kind;
    std::vector<std::int64_t> sizes;
    bool operator==(const ExplicitPart&) const = default;
};

/// The parts of a layer in one order: those that make no half of their own come last.
std::vector<ExplicitPart> explicit_parts(const std::vector<LayerPart>& parts) {
    std::vector<ExplicitPart> all, maps, choices;
    bool experts = false;
    for (const LayerPart& part : parts) {
        const PartKind* const kind = find_part_kind(part.kind);
        const PartRole role = kind->role;
        ExplicitPart& one = (role == PartRole::stream_maps ? maps : role == PartRole::word_choice ? choices : all).emplace_back();
        one.kind = kind;
        for (const PartSize& size : kind->sizes) {
            // Typed layers follow the first two, and shared experts have the activation of the others.
            if (size.name == "positions" || size.name == "behind" || (experts && size.name == "activation")) continue;
            one.sizes.push_back(part_size(part, size.name));
        }
        experts |= role == PartRole::mixture;
    }
    for (std::vector<ExplicitPart>* last : {&maps, &choices}) all.insert(all.end(), last->begin(), last->end());
    return all;
}

/// The kind of layer that has exactly these parts; nothing where none has.
std::optional<Layer> layer_of_parts(const ModelSpec& spec, const std::vector<LayerPart>& parts) {
    std::optional<Layer> layer = stated_layer(spec, parts);
    if (layer && explicit_parts(composition_of(with_fields(spec, *layer, 0), spec.hidden).parts) != explicit_parts(parts)) layer.reset();
    return layer;
}

/// True if the parts outside the layers are those that typed layers read there, and the final norm.
bool is_what_layers_read(const ModelSpec& model, const std::vector<LayerPart>& outside) {
    const std::vector<Layer> kinds = typed_kinds(model);
    const std::vector<ExplicitPart> read = explicit_parts(parts_beside(kinds, kinds.front().norms.norm, model)),
                                    given = explicit_parts(outside);
    return std::is_permutation(read.begin(), read.end(), given.begin(), given.end());
}

void check_parts(const std::vector<LayerPart>& parts, const std::string& where, Problems& problems) {
    if (parts.size() > ModelLimits::parts) problems.add("{}: {} parts; give at most {}", where, parts.size(), ModelLimits::parts);
    for (const LayerPart& part : parts) check_part(part, where, problems);
}

/// A value that both a field of the model and a size of its parts state.
struct LayerClaim {
    std::string_view part, size, field;
    std::int64_t (*stated)(const ModelSpec& model);
    std::int64_t by_default;  ///< the field's value if the file does not state it
};
constexpr std::int64_t kStatedAlways = -1;

constexpr std::array kClaims{
    LayerClaim{"attention", "heads", "heads", [](const ModelSpec& model) { return model.heads; }, kStatedAlways},
    LayerClaim{"attention", "kv_heads", "kv_heads", [](const ModelSpec& model) { return model.kv_heads; }, kStatedAlways},
    LayerClaim{"attention", "head_dim", "head_dim", [](const ModelSpec& model) { return model.head_dim; }, kStatedAlways},
    LayerClaim{"attention", "qkv_bias", "qkv_bias", [](const ModelSpec& model) { return std::int64_t{model.qkv_bias}; }, 0},
    LayerClaim{"attention", "output_bias", "attention_output_bias",
               [](const ModelSpec& model) { return std::int64_t{model.attention_output_bias}; }, 0},
    LayerClaim{"attention", "output_gate", "attention_output_gate",
               [](const ModelSpec& model) { return std::int64_t{model.attention_output_gate}; }, 0},
    LayerClaim{"mlp", "bias", "mlp_bias", [](const ModelSpec& model) { return std::int64_t{model.mlp_bias}; }, 0},
    LayerClaim{"experts", "experts", "moe.experts", [](const ModelSpec& model) { return model.moe ? model.moe->experts : -1; }, -1},
    LayerClaim{"experts", "top_k", "moe.top_k", [](const ModelSpec& model) { return model.moe ? model.moe->top_k : -1; }, -1},
    LayerClaim{"experts", "width", "moe.expert_ffn", [](const ModelSpec& model) { return model.moe ? model.moe->expert_ffn : -1; }, -1},
    LayerClaim{"latent_attention", "heads", "heads", [](const ModelSpec& model) { return model.heads; }, kStatedAlways},
    LayerClaim{"latent_attention", "q_lora_rank", "mla.q_lora_rank",
               [](const ModelSpec& model) { return model.mla ? model.mla->q_lora_rank : -1; }, -1},
    LayerClaim{"latent_attention", "kv_lora_rank", "mla.kv_lora_rank",
               [](const ModelSpec& model) { return model.mla ? model.mla->kv_lora_rank : -1; }, -1},
    LayerClaim{"latent_attention", "v_head_dim", "mla.v_head_dim",
               [](const ModelSpec& model) { return model.mla ? model.mla->v_head_dim : -1; }, -1}};

/// Adds a problem for each field of which no layer agrees.
void check_fields_of_layers(const ModelSpec& model, const ModelParts& parts, const std::string& where, Problems& problems) {
    for (const LayerClaim& claim : kClaims) {
        const std::int64_t stated = claim.stated(model);
        if (stated == claim.by_default) continue;
        const LayerComposition* other = nullptr;
        std::int64_t other_size = 0;
        bool agrees = false;
        for (const LayerComposition& layer : parts.kinds) {
            for (const LayerPart& part : layer.parts) {
                if (part.kind == claim.part) {
                    other = &layer;
                    other_size = part_size(part, claim.size);
                    agrees = agrees || other_size == stated;
                }
                if (role_of(part) == PartRole::mixture) break;  // an MLP after it is its shared experts
            }
        }
        if (other == nullptr || agrees) continue;
        problems.add("{}: {} = {} contradicts layer_kinds, where {} of part '{}' of kind '{}' is {}; change one of them", where,
                     claim.field, stated, claim.size, claim.part, other->name.substr(0, 40), other_size);
    }
}

/// Sets the kinds, which have their names, and what is outside the layers.
void set_kinds(ModelSpec& model, const ModelParts& parts, const std::string& where, Problems& problems) {
    for (std::size_t i = 0; i < parts.kinds.size(); ++i) {
        Layer& kind = model.kinds[i].layer;
        if (!parts.kinds[i].counted.empty())
            kind.counted = parts.kinds[i].counted;
        else if (std::optional<Layer> layer = layer_of_parts(model, parts.kinds[i].parts))
            kind = *std::move(layer);
        else
            problems.add(
                "{}: layers of kind '{}' have parts that no layer here has together, or other sizes than the model's fields state; give "
                "the "
                "model's config.json, or their tensors as counted",
                where, model.kinds[i].name.substr(0, 40));
    }
    if (!problems.empty()) return;
    if (parts.kinds.empty()) {
        for (const LayerPart& part : parts.outside) {
            if (part.kind == "choice_biases")
                model.counted.push_back(
                    {std::string(kChoiceBias), {part_size(part, "experts")}, part_size(part, "mixtures"), part_size(part, "mixtures")});
            else
                problems.add("{}: beside_layers holds part '{}' without layer_kinds that read it; remove it", where, part.kind);
        }
    } else if (model.counted.empty() && !has_counted_layers(model) ? !is_what_layers_read(model, parts.outside) : !parts.outside.empty()) {
        problems.add("{}: beside_layers is not what these kinds of layers read there and the final norm; give that, or tensors as counted",
                     where);
    }
}

}  // namespace

void set_layers(ModelSpec& model, const ModelParts& parts, const std::string& where) {
    Problems problems;
    for (const LayerComposition& kind : parts.kinds) {
        check_parts(kind.parts, fmt::format("{}: layers of kind '{}'", where, kind.name.substr(0, 40)), problems);
        if (kind.parts.empty() == kind.counted.empty())
            problems.add("{}: layers of kind '{}' {}; give either their parts or their counted tensors", where, kind.name.substr(0, 40),
                         kind.parts.empty() ? "have neither parts nor counted tensors" : "have parts and counted tensors");
        model.kinds.push_back({kind.name, {}});
    }
    check_parts(parts.outside, where + ": beside_layers", problems);
    model.kind_of_layer = parts.of_layer;
    model.kind_of_prediction = parts.of_prediction;
    if (problems.empty()) check_fields_of_layers(model, parts, where, problems);
    if (problems.empty()) set_kinds(model, parts, where, problems);
    try {
        validate(model, where);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
}

}  // namespace mgplan
