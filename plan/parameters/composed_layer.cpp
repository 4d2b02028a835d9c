#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/computed_parts.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

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
        const PartRole role = kind->traits.role;
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

/// The fields and halves that a layer's parts state, whether or not layers here compute all of them; nothing where no layer follows.
std::optional<ComposedLayer> stated_layer(const ModelSpec& model, const LayerComposition& composition) {
    if (composition.parts.empty() || traits_of(composition.parts.front()).role != PartRole::norm) return std::nullopt;
    ComposedLayer layer{model, {}, {}};
    layer.fields.compositions.clear();
    layer.fields.composition_of_layer.clear();
    layer.fields.beside_layers.clear();
    for (const LayerPart& part : composition.parts) {
        const PartRole role = traits_of(part).role;
        const bool feeds = role == PartRole::feed_forward || role == PartRole::mixture;
        std::optional<LayerPart>& half = feeds ? layer.feed_forward : layer.mixer;
        if ((!feeds && role != PartRole::mixer) || half) continue;  // a second feed-forward is the shared experts
        const ComputedPart* const computed = find_computed_part(part);
        if (computed == nullptr || !computed->describe(stated_sizes(part, model.hidden), layer.fields)) return std::nullopt;
        half = part;
    }
    if (!layer.mixer && !layer.feed_forward) return std::nullopt;
    if (part_size(composition.parts.front(), "behind") != 0) {
        layer.fields.pre_norms = norms_in_front_and_behind(composition.parts.front());
        layer.fields.post_norms = true;
    }
    return layer;
}

/// Mixers that fields do not describe have a norm after them if their kind has one, and then also one in front.
bool has_norms_of_kind(const Layer& layer) {
    if (!layer.mixer || !carries_state(*layer.mixer)) return true;
    const bool whole = std::holds_alternative<Gemma3nLayer>(*layer.mixer);
    const bool around = whole || std::holds_alternative<GemmaAttention>(*layer.mixer);
    return layer.norms.after == around && (!around || layer.norms.before) && !(whole && layer.feed_forward);
}

/// True if layers with inputs of their own state alike what they read, and if streams that no maps mix pass layers of Gemma 3n alone.
bool read_alike(const std::vector<Layer>& kinds) {
    std::set<std::pair<std::int64_t, std::int64_t>> inputs;  // streams, width of the layers' own inputs
    bool others = false;
    for (const Layer& layer : kinds) {
        const Mixer* const mixer = layer.mixer ? &*layer.mixer : nullptr;
        const auto* const gemma3n = std::get_if<Gemma3nLayer>(mixer);
        if (gemma3n != nullptr) inputs.emplace(gemma3n->streams, gemma3n->attention.layer_input_width);
        if (const auto* const gemma = std::get_if<GemmaAttention>(mixer)) inputs.emplace(1, gemma->layer_input_width);
        others |= gemma3n == nullptr;
    }
    return inputs.size() <= 1 && (!others || inputs.empty() || inputs.begin()->first == 1);
}

/// True if the parts outside the layers are the final norm, what this layer reads there, and what other layers may read.
bool finds_what_it_reads(const Layer& layer, const ModelSpec& model) {
    const std::vector<ExplicitPart> read = explicit_parts(parts_beside({layer}, layer.norms.norm, model));
    std::vector<ExplicitPart> rest = explicit_parts(model.beside_layers);
    if (const auto* reader = std::get_if<SharedBlockMamba2>(layer.mixer ? &*layer.mixer : nullptr)) {
        const auto place = static_cast<std::size_t>(reader->block.number);
        if (place >= rest.size() || rest[place] != read.front()) return false;
    }
    for (const ExplicitPart& part : read) {
        const auto found = std::find(rest.begin(), rest.end(), part);
        if (found == rest.end()) return false;
        rest.erase(found);
    }
    return std::all_of(rest.begin(), rest.end(), [](const ExplicitPart& part) { return part.kind->traits.shared; });
}

/// True if a typed layer has the parts that state it, and norms as its kind of mixer has them.
bool says_all(const Layer& layer, const LayerComposition& composition, std::int64_t hidden) {
    return has_norms_of_kind(layer) && explicit_parts(composition_of(layer, hidden).parts) == explicit_parts(composition.parts);
}

}  // namespace

bool chooses_by_words(const ModelSpec& model, std::int64_t layer) {
    if (model.compositions.empty() || layer >= std::ssize(model.composition_of_layer)) return false;
    const LayerComposition& kind = model.compositions[model.composition_of_layer[static_cast<std::size_t>(layer)]];
    return has_part_with(kind, PartRole::word_choice);
}

std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model) {
    // As its recipes have them (Megatron-LM's branch dev at d48bd6be, examples/moe_recipes).
    static constexpr std::array kCompressed{EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj},
                                            EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::mhc},
                                            EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj, RecomputeModule::moe_act}};
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            if (part.kind == CompressedAttention::kKind) return kCompressed;
        }
    }
    return {};
}

EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model) {
    const auto published = published_recompute_sets(model);
    return published.empty() ? EnumSet<RecomputeModule>{RecomputeModule::core_attn} : published.front();
}

bool norms_in_front_and_behind(const LayerPart& norm) {
    return part_size(norm, "behind") == 2;
}

std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition) {
    std::optional<ComposedLayer> layer = stated_layer(model, composition);
    if (layer && !says_all(typed_layer(*layer, composition, 0), composition, model.hidden)) layer.reset();
    return layer;
}

ComposedLayer composed_layer(const ModelSpec& model, const LayerComposition& composition) {
    std::optional<ComposedLayer> layer = stated_layer(model, composition);
    MGPLAN_ASSERT(layer.has_value(), "layers here compute this kind of layer: " + composition.name);
    return *std::move(layer);
}

ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer) {
    const auto last = static_cast<std::int64_t>(model.composition_of_layer.size()) - 1;
    return composed_layer(model, model.compositions.at(model.composition_of_layer.at(static_cast<std::size_t>(std::min(layer, last)))));
}

ModelSpec with_stated_fields(const ModelSpec& model) {
    ModelSpec all = model;
    if (model.compositions.empty()) return all;
    all.heads = all.kv_heads = 1;
    all.head_dim = model.hidden;
    all.position = PositionEmbedding::none;
    all.qkv_bias = all.attention_output_bias = all.attention_output_gate = all.qk_norm = false;
    for (const LayerComposition& kind : model.compositions) {
        const ComposedLayer layer = composed_layer(model, kind);
        const ModelSpec& stated = layer.fields;
        const Layer typed = typed_layer(layer, kind, 0);
        if (typed.mixer && (!carries_state(*typed.mixer) || std::holds_alternative<AttentionBesideMamba2>(*typed.mixer))) {
            all.heads = stated.heads;
            all.kv_heads = stated.kv_heads;
            all.head_dim = stated.head_dim;
            all.position = stated.position;
            all.qkv_bias = stated.qkv_bias;
            all.attention_output_bias = stated.attention_output_bias;
            all.attention_output_gate = stated.attention_output_gate;
            all.qk_norm = stated.qk_norm;
            all.qk_norm_full_width = stated.qk_norm_full_width;
        }
        if (!typed.feed_forward) continue;
        if (std::holds_alternative<Mlp>(*typed.feed_forward)) all.ffn = stated.ffn;
        all.gated_mlp = stated.gated_mlp;
        all.mlp_bias = stated.mlp_bias;
        all.activation = stated.activation;
    }
    if (model.position == PositionEmbedding::learned) all.position = model.position;
    return all;
}

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0 || model.word_width != 0) return false;
    const std::vector<LayerPart>& outside = model.beside_layers;
    if (model.compositions.empty())
        return std::all_of(outside.begin(), outside.end(), [&](const LayerPart& part) { return is_choice_bias(part, model); });
    if (model.mtp_layers > 0) return false;
    std::vector<Layer> kinds;
    for (const LayerComposition& composition : model.compositions) {
        const std::optional<ComposedLayer> layer = stated_layer(model, composition);
        if (!layer) return false;
        const Layer& typed = kinds.emplace_back(typed_layer(*layer, composition, 0));
        if (!says_all(typed, composition, model.hidden) || !finds_what_it_reads(typed, model)) return false;
    }
    return read_alike(kinds);
}

}  // namespace mgplan
