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
bool read_activation(Activation& activation, const PartSizes& s) {
    const std::int64_t stated = s["activation"];
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    activation = static_cast<Activation>(stated - 1);
    return true;
}

bool read(Attention& mixer, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mixer, s);
    if (s["positions"] == 2) mixer.rotary.emplace();
    mixer.qk_norm = static_cast<QkNorm>(s["qk_norm"]);
    return s["qk_norm"] <= 3 && s["positions"] >= 1 && s["positions"] <= 2;
}

/// Its sizes are in MlaSpec too, together with values that no size of the part holds.
bool read(LatentAttention& mixer, const PartSizes& s, const ModelSpec& spec) {
    mixer.heads = s["heads"];
    return spec.mla.has_value();
}

bool read(Gemma3nLayer& mixer, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mixer, s);
    return read_activation(mixer.mlp.activation, s);
}

bool read(Mamba& mixer, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mixer, s);
    return s["inner_norms"] <= 2;
}

bool read(AttentionBesideMamba2& mixer, const PartSizes& s, const ModelSpec& spec) {
    mixer.attention = attention_of(spec, 0);
    read_part(mixer, s);
    return true;
}

bool read(SharedBlockMamba2& mixer, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mixer, s);
    if (s["positions"] == 2) mixer.block.rotary.emplace();
    return s["positions"] <= 2 && read_activation(mixer.block.activation, s);
}

template <class Kind>
bool read(Kind& mixer, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mixer, s);
    return true;
}

bool read(Mlp& mlp, const PartSizes& s, const ModelSpec& /*spec*/) {
    read_part(mlp, s);
    mlp.gated = s["gated"] != 0;
    return read_activation(mlp.activation, s);
}

/// The part describes an MoE layer, and MoeSpec its values that no size of the part holds (scores, balancing).
bool read(Mixture& mixture, const PartSizes& s, const ModelSpec& spec) {
    mixture.gated = s["gated"] != 0;
    mixture.bias = s["bias"] != 0;
    return spec.moe && read_activation(mixture.activation, s);
}

template <class Kind, class Half>
bool read_half(const LayerPart& part, const ModelSpec& spec, std::optional<Half>& half) {
    Kind kind;
    if (!read(kind, stated_sizes(part, spec.hidden), spec)) return false;
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

/// The window that a part states; 0: none.
std::int64_t window_of_part(const LayerPart& part) {
    return stated_sizes(part, 0).has("window") ? part_size(part, "window") : 0;
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
            layer.window = window_of_part(part);
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
        const PartSizes sizes = stated_sizes(part, 0);
        for (const PartSize& size : kind->sizes) {
            // Typed layers follow the first two, and shared experts have the activation of the others.
            if (size.name == "positions" || size.name == "behind" || (experts && size.name == "activation")) continue;
            one.sizes.push_back(sizes[size.name]);
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
bool has_what_layers_read(const ModelSpec& model, const std::vector<LayerPart>& outside) {
    const std::vector<Layer> kinds = typed_kinds(model);
    const std::vector<ExplicitPart> read = explicit_parts(parts_beside(kinds, kinds.front().norms.norm, model)),
                                    given = explicit_parts(outside);
    return std::is_permutation(read.begin(), read.end(), given.begin(), given.end());
}

void check_parts(const std::vector<LayerPart>& parts, const std::string& where, Problems& problems) {
    if (parts.size() > ModelLimits::parts) problems.add("{}: {} parts; give at most {}", where, parts.size(), ModelLimits::parts);
    for (const LayerPart& part : parts) check_part(part, where, problems);
}

/// Types each kind that can be, and counts the rest. Kinds have their names.
void set_kinds(ModelSpec& model, const ModelParts& parts) {
    const auto counted = [&](const LayerComposition& kind) {
        return kind.counted.empty() ? parts_tensors(kind.parts, model.hidden) : kind.counted;
    };
    for (std::size_t i = 0; i < parts.kinds.size(); ++i) {
        Layer& kind = model.kinds[i].layer;
        if (std::optional<Layer> layer = layer_of_parts(model, parts.kinds[i].parts))
            kind = *std::move(layer);
        else
            kind.counted = counted(parts.kinds[i]);
    }
    const bool typed = !parts.kinds.empty() && !has_counted_layers(model);
    if (typed && model.counted.empty() && has_what_layers_read(model, parts.outside)) return;
    for (CountedTensor& tensor : parts_tensors(parts.outside, model.hidden)) model.counted.push_back(std::move(tensor));
    if (!typed || !model.counted.empty()) return;
    // Nothing is outside, not even a final norm.
    for (std::size_t i = 0; i < parts.kinds.size(); ++i) {
        model.kinds[i].layer = {};
        model.kinds[i].layer.counted = counted(parts.kinds[i]);
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
        if (model.hyper_connections && kind.counted.empty() && !has_part_with(kind, PartRole::stream_maps))
            problems.add("{}: hyper_connections beside layers of kind '{}', whose parts hold no hyper_connection; add it, or remove them",
                         where, kind.name.substr(0, 40));
        model.kinds.push_back({kind.name, {}});
    }
    check_parts(parts.outside, where + ": beside_layers", problems);
    model.kind_of_layer = parts.of_layer;
    model.kind_of_prediction = parts.of_prediction;
    if (problems.empty()) set_kinds(model, parts);
    try {
        validate(model, where);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
}

}  // namespace mgplan
