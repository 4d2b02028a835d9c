#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <utility>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/computed_parts.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

/// Norms of `halves` halves of a layer, in front of them or behind: of the model's kind, over the hidden size.
bool is_norm_of(const LayerPart& part, const ModelSpec& model, std::int64_t halves) {
    if (part.kind != "norm") return false;
    const PartSizes sizes = stated_sizes(part, model.hidden);
    const bool biased = model.normalization == Normalization::layer_norm && model.norm_bias;
    return sizes["width"] == model.hidden && sizes["weight"] == 1 && (sizes["bias"] != 0) == biased && sizes["copies"] == halves;
}

/// What may follow the experts: the shared experts as an MLP, a gate on them, maps to the experts' width and back,
/// norms around the branches.
bool shares_as_described(const std::vector<LayerPart>& parts, std::size_t next, const ModelSpec& fields) {
    const MoeSpec& moe = *fields.moe;
    if (moe.shared_ffn > 0) {
        if (next == parts.size() || parts[next].kind != "mlp") return false;
        const PartSizes shared = stated_sizes(parts[next++], fields.hidden);
        if (shared["width"] != moe.shared_ffn || (shared["gated"] != 0) != fields.gated_mlp || shared["bias"] != 0 || shared["in"] != 0)
            return false;
    }
    if (moe.shared_gate) {
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes gate = stated_sizes(parts[next++], fields.hidden);
        if (gate["in"] != fields.hidden || gate["out"] != 1 || gate["bias"] != 0 || gate["copies"] != 1) return false;
    }
    // Maps to the experts' width and back.
    for (const bool there : {true, false}) {
        if (moe.latent == 0) break;
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes map = stated_sizes(parts[next++], fields.hidden);
        const std::int64_t in = there ? fields.hidden : moe.latent, out = there ? moe.latent : fields.hidden;
        if (map["in"] != in || map["out"] != out || map["bias"] != 0 || map["copies"] != 1) return false;
    }
    // Norms around the branches, and a factor for each expert.
    if (moe.branch_norms) {
        if (parts.size() - next != 2 || moe.shared_ffn == 0 || !is_norm_of(parts[next], fields, 4)) return false;
        const LayerPart& factors = parts[next + 1];
        return factors.kind == "values" && stated_sizes(factors, fields.hidden)["count"] == moe.experts;
    }
    return next == parts.size();
}

/// Whether maps stand around each half of a layer of a model with residual streams that maps mix, and around none of another.
bool mixes_as_described(const ModelSpec& model, const LayerComposition& composition, std::int64_t halves) {
    std::vector<LayerPart> stated;
    for (const LayerPart& part : composition.parts) {
        if (part.kind == "hyper_connection") stated.push_back(part);
    }
    if (!model.hyper_connections) return stated.empty();
    return stated.size() == 1 && stated.front() == stream_maps_part(*model.hyper_connections, halves);
}

/// Whether a choice of experts by words, where there is one, is of as many experts as the mixture has for a token.
bool chooses_as_described(const ModelSpec& model, const LayerComposition& composition, bool mixture) {
    return std::all_of(composition.parts.begin(), composition.parts.end(), [&](const LayerPart& part) {
        return part.kind != "word_choice" || (mixture && model.moe && part_size(part, "top_k") == model.moe->top_k);
    });
}

/// Whether a mixer is attention, alone or beside another.
bool attends(const LayerPart& mixer) {
    return !carries_state(mixer) || mixer.kind == "attention_beside_mamba2";
}

}  // namespace

LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves) {
    return {"hyper_connection", {{"streams", streams.streams}, {"maps", streams.maps()}, {"scales", 3}, {"copies", halves}}};
}

bool chooses_by_words(const ModelSpec& model, std::int64_t layer) {
    if (model.compositions.empty() || layer >= std::ssize(model.composition_of_layer)) return false;
    const LayerComposition& kind = model.compositions[model.composition_of_layer[static_cast<std::size_t>(layer)]];
    return std::any_of(kind.parts.begin(), kind.parts.end(), [](const LayerPart& part) { return part.kind == "word_choice"; });
}

EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model) {
    return {has_part_with(model, &PartTraits::keeps_core) ? RecomputeModule::mla_up_proj : RecomputeModule::core_attn};
}

bool norms_in_front_and_behind(const LayerPart& norm) {
    return part_size(norm, "behind") == 2;
}

bool carries_state(const LayerPart& mixer) {
    return mixer.kind != "attention" && mixer.kind != "latent_attention";
}

std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition) {
    ComposedLayer layer{model, {}, {}};
    layer.fields.compositions.clear();
    layer.fields.composition_of_layer.clear();
    layer.fields.beside_layers.clear();
    std::vector<LayerPart> parts = composition.parts;
    // What mixes streams around the halves, and what chooses experts by words, make no half of their own.
    std::erase_if(parts, [](const LayerPart& part) { return part.kind == "hyper_connection" || part.kind == "word_choice"; });
    std::size_t next = 1;
    const auto take = [&](bool mixes_tokens, std::optional<LayerPart>& half) {
        if (next >= parts.size()) return true;
        const ComputedPart* const computed = find_computed_part(parts[next]);
        if (computed == nullptr || computed->mixes_tokens != mixes_tokens) return mixes_tokens;  // a layer may have no mixer
        if (!computed->describe(stated_sizes(parts[next], model.hidden), layer.fields)) return false;
        half = parts[next++];
        return true;
    };
    if (parts.size() < 2 || !take(true, layer.mixer) || !take(false, layer.feed_forward)) return std::nullopt;
    const bool mixture = layer.feed_forward && layer.feed_forward->kind == "experts";
    if (mixture ? !shares_as_described(parts, next, layer.fields) : next != parts.size()) return std::nullopt;
    const std::int64_t halves = (layer.mixer ? 1 : 0) + (layer.feed_forward ? 1 : 0);
    if (parts.front().kind != "norm") return std::nullopt;
    const std::int64_t behind = stated_sizes(parts.front(), model.hidden)["behind"],
                       both = norms_in_front_and_behind(parts.front()) ? 2 : 1;
    if (halves == 0 || !is_norm_of(parts.front(), model, both * halves)) return std::nullopt;
    if (!mixes_as_described(model, composition, halves) || !chooses_as_described(model, composition, mixture)) return std::nullopt;
    const bool normed_behind = layer.mixer && (layer.mixer->kind == "gemma_attention" || layer.mixer->kind == "gemma3n_layer");
    if (behind == 0) return normed_behind ? std::nullopt : std::optional(layer);
    // One alone of the mixers with a state has a norm behind it, and that beside the one in front.
    const bool stateful = layer.mixer && carries_state(*layer.mixer);
    if (stateful && (!normed_behind || both == 1)) return std::nullopt;
    if (layer.feed_forward && layer.mixer && layer.mixer->kind == "gemma3n_layer") return std::nullopt;  // which has its own
    layer.fields.pre_norms = both == 2;
    layer.fields.post_norms = true;
    return layer;
}

ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer) {
    const auto last = static_cast<std::int64_t>(model.composition_of_layer.size()) - 1;
    const auto kind = model.composition_of_layer.at(static_cast<std::size_t>(std::min(layer, last)));
    auto computed = computed_layer(model, model.compositions.at(kind));
    MGPLAN_ASSERT(computed.has_value(), "layers here compute this kind of layer: " + model.compositions[kind].name);
    return *std::move(computed);
}

ModelSpec with_stated_fields(const ModelSpec& model) {
    ModelSpec all = model;
    if (model.compositions.empty()) return all;
    all.heads = all.kv_heads = 1;
    all.head_dim = model.hidden;
    all.position = PositionEmbedding::none;
    all.qkv_bias = all.attention_output_bias = all.attention_output_gate = all.qk_norm = false;
    for (const LayerComposition& kind : model.compositions) {
        const auto layer = computed_layer(model, kind);
        MGPLAN_ASSERT(layer.has_value(), "layers here compute this kind of layer: " + kind.name);
        const ModelSpec& stated = layer->fields;
        if (layer->mixer && attends(*layer->mixer)) {
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
        if (!layer->feed_forward) continue;
        if (layer->feed_forward->kind == "mlp") all.ffn = stated.ffn;
        all.gated_mlp = stated.gated_mlp;
        all.mlp_bias = stated.mlp_bias;
        all.activation = stated.activation;
    }
    if (model.position == PositionEmbedding::learned) all.position = model.position;
    return all;
}

namespace {

/// Whether beside the layers stand so many streams' ends and the norm of inputs of this width, each alone and only where there are some,
/// and the final norm.
bool has_ends_and_input_norm(const ModelSpec& model, std::int64_t streams, std::int64_t width) {
    std::vector<LayerPart> wanted;
    if (streams > 1) wanted.push_back({"stream_ends", {{"streams", streams}}});
    if (width > 0) wanted.push_back({"layer_input_norm", {{"width", width}}});
    return model.beside_layers.size() == wanted.size() + 1 && std::equal(wanted.begin(), wanted.end(), model.beside_layers.begin());
}

/// Whether a part is the map that brings the model's streams together in front of the final norm.
bool brings_streams_together(const ModelSpec& model, const LayerPart& part) {
    if (!model.hyper_connections || !model.hyper_connections->learned_head) return false;
    const std::int64_t streams = model.hyper_connections->streams;
    return part == LayerPart{"hyper_connection", {{"streams", streams}, {"maps", streams}, {"scales", 1}, {"copies", 1}}};
}

/// Whether the parts beside the layers are what they share and the final norm.
bool shares_as_beside(const ModelSpec& model) {
    const auto blocks = static_cast<std::int64_t>(model.beside_layers.size()) - 1;
    // Streams come together once, and no other part knows of them.
    const auto heads = std::count_if(model.beside_layers.begin(), model.beside_layers.end(),
                                     [&](const LayerPart& part) { return brings_streams_together(model, part); });
    if (heads != (model.hyper_connections && model.hyper_connections->learned_head ? 1 : 0)) return false;
    for (std::int64_t i = 0; i < blocks; ++i) {
        const LayerPart& block = model.beside_layers[static_cast<std::size_t>(i)];
        if (block.kind == "layer_input_norm" || block.kind == "stream_ends") continue;
        if (brings_streams_together(model, block)) continue;
        if (block.kind != "shared_block" || stated_sizes(block, model.hidden)["bias"] != 0) return false;
    }
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            const bool gemma3n = part.kind == "gemma3n_layer";
            if (gemma3n || part.kind == "gemma_attention") {
                const PartSizes sizes = stated_sizes(part, model.hidden);
                if (!has_ends_and_input_norm(model, gemma3n ? sizes["streams"] : 1, sizes["input"])) return false;
            } else if (part.kind != "norm" && model.streams() > 1 && !model.hyper_connections) {
                return false;  // a half that reads one stream
            }
            if (part.kind != "shared_block_mamba2") continue;
            if (model.beside_layers.front().kind != "shared_block") return false;
            const PartSizes sizes = stated_sizes(part, model.hidden);
            if (sizes["block"] >= blocks) return false;
            const PartSizes block = stated_sizes(model.beside_layers[static_cast<std::size_t>(sizes["block"])], model.hidden);
            for (const auto* same : {"query_heads", "kv_heads", "head_dim", "width"}) {
                if (sizes[same] != block[same]) return false;
            }
            // An adapter of keys is as wide as that of queries.
            const bool alike = sizes["kv_heads"] == sizes["query_heads"] && sizes["query_heads"] * sizes["head_dim"] == 2 * model.hidden;
            if (sizes["adapts_attention"] != 0 && !alike) return false;
        }
    }
    return true;
}

/// Biases that are counted and that training has, of a mixture's experts. Of how many mixtures, only the count asks; a piece of the model
/// may have none.
bool is_choice_of(const LayerPart& part, const ModelSpec& model) {
    if (part.kind != "choice_biases") return false;
    return !model.moe || (model.moe->expert_bias && stated_sizes(part, model.hidden)["experts"] == model.moe->experts);
}

}  // namespace

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0 || model.word_width != 0) return false;
    if (model.compositions.empty())
        return std::all_of(model.beside_layers.begin(), model.beside_layers.end(),
                           [&](const LayerPart& part) { return is_choice_of(part, model); });
    return !model.beside_layers.empty() && is_norm_of(model.beside_layers.back(), model, 1) && shares_as_beside(model) &&
           model.mtp_layers == 0 && std::all_of(model.compositions.begin(), model.compositions.end(), [&](const LayerComposition& kind) {
               return computed_layer(model, kind).has_value();
           });
}

void add_composed_layer(ParameterList& list, const ComposedLayer& layer, const ParallelSizes& sizes) {
    const auto add_streams = [&](std::string_view module) {
        if (layer.fields.hyper_connections) add_stream_maps(list, *layer.fields.hyper_connections, layer.fields.hidden, module);
    };
    for (const auto& half : {layer.mixer, layer.feed_forward}) {
        if (!half) continue;
        const ComputedPart* const computed = find_computed_part(*half);
        computed->add_parameters(list, layer.fields, stated_sizes(*half, layer.fields.hidden), sizes);
        if (!layer.fields.post_norms) continue;
        const std::string name = computed->mixes_tokens ? "post_self_attn_layernorm." : "post_mlp_layernorm.";
        list.add_norm(layer.fields, name + "weight", name + "bias", layer.fields.hidden);
    }
    // Behind both halves, as of layers that fields describe.
    if (layer.mixer) add_streams("self_attention_hyper_connection");
    if (layer.feed_forward) add_streams("mlp_hyper_connection");
}

std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes) {
    std::vector<std::string> all;
    for (const LayerComposition& kind : model.compositions) {
        const ComposedLayer layer = computed_layer(model, kind).value();
        std::vector<std::string> obstacles;
        for (const auto& half : {layer.mixer, layer.feed_forward}) {
            if (half) find_computed_part(*half)->add_obstacles(obstacles, layer.fields, stated_sizes(*half, model.hidden), sizes);
        }
        for (std::string& obstacle : obstacles) {
            if (std::find(all.begin(), all.end(), obstacle) == all.end()) all.push_back(std::move(obstacle));
        }
    }
    return all;
}

}  // namespace mgplan
