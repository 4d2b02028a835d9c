#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "plan/model/layer_parts.hpp"
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

/// True for biases of experts that are counted and trained, outside layers that fields describe. Only counting reads the number of MoE
/// layers; a part of the model may have none.
bool is_choice_bias(const LayerPart& part, const ModelSpec& model) {
    if (part.kind != "choice_biases") return false;
    return !model.moe || (model.moe->expert_bias && part_size(part, "experts") == model.moe->experts);
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

std::optional<Layer> computed_layer(const ModelSpec& model, const LayerComposition& composition) {
    std::optional<Layer> layer = stated_layer(model, composition, 0);
    if (layer && !says_all(*layer, composition, model.hidden)) layer.reset();
    return layer;
}

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0 || model.word_width != 0) return false;
    const std::vector<LayerPart>& outside = model.beside_layers;
    if (model.compositions.empty())
        return std::all_of(outside.begin(), outside.end(), [&](const LayerPart& part) { return is_choice_bias(part, model); });
    // The last stage has no blocks and inputs that the first one computes for layers.
    if (model.mtp_layers > 0 && parts_beside({typed_layer(model, model.layers)}, Norm{}, ModelSpec{}).size() > 1) return false;
    std::vector<Layer> kinds;
    for (const LayerComposition& composition : model.compositions) {
        std::optional<Layer> layer = computed_layer(model, composition);
        if (!layer || !finds_what_it_reads(*layer, model)) return false;
        kinds.push_back(*std::move(layer));
    }
    return read_alike(kinds);
}

}  // namespace mgplan
