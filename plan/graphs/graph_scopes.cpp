#include "plan/graphs/graph_scopes.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/model/layers_of_model.hpp"
#include "plan/text/text.hpp"

namespace mgplan {

using Scope = CudaGraphScope;

Scope scope_of(const Mixer& mixer) {
    return std::holds_alternative<Mamba>(mixer) || std::holds_alternative<Mamba2>(mixer) ? Scope::mamba : Scope::attn;
}

namespace {

CapturedHalves captured(EnumSet<Scope> scopes, const Mixer* mixer, const FeedForward* feed_forward) {
    CapturedHalves halves;
    const bool all = scopes.contains(Scope::layer);
    halves.mixer = mixer != nullptr && (all || scopes.contains(scope_of(*mixer)));
    if (feed_forward == nullptr) return halves;
    const bool mixture = std::holds_alternative<Mixture>(*feed_forward);
    halves.feed_forward = all || scopes.contains(mixture ? Scope::moe : Scope::mlp);
    halves.router = mixture && !halves.feed_forward && scopes.contains(Scope::moe_router);
    return halves;
}

/// True if the model has mixers of several branches, which no layer of Megatron-core is.
bool has_branches(const ModelSpec& model) {
    return has_mixer(model, [](const Mixer& mixer) {
        return std::holds_alternative<AttentionBesideMamba2>(mixer) || std::holds_alternative<SharedBlockMamba2>(mixer) ||
               std::holds_alternative<Gemma3nLayer>(mixer);
    });
}

}  // namespace

EnumSet<Scope> read_graph_scopes(std::string_view text, Problems& problems) {
    EnumSet<Scope> scopes;
    auto names = cuda_graph_scope_names();
    names.emplace_back("none");
    const auto words = split(std::string(text), ',');
    if (words.empty()) problems.add("--cuda-graphs is empty; use {}", any_of_text(names));
    for (const std::string& word : words) {
        if (word == "none" && words.size() == 1) return {};
        const auto scope = parse_cuda_graph_scope(word);
        if (!scope) {
            problems.add("--cuda-graphs = '{}' is not known; use {}", word.substr(0, 60), any_of_text(names));
            break;
        }
        scopes.add(*scope);
    }
    return scopes;
}

void check_graph_scopes(EnumSet<Scope> scopes, Problems& problems) {
    if (scopes.contains(Scope::moe_preprocess) && !scopes.contains(Scope::moe_router))
        problems.add("cuda graphs: moe_preprocess needs moe_router, whose outputs it takes; add moe_router or drop moe_preprocess");
    if (scopes.contains(Scope::moe) && scopes.contains(Scope::moe_router))
        problems.add("cuda graphs: moe captures the router with the experts, moe_router leaves the experts out; use one of them");
    for (const Scope whole : {Scope::layer, Scope::full_iteration}) {
        EnumSet<Scope> alone;
        alone.add(whole);
        if (scopes.contains(whole) && scopes != alone)
            problems.add("cuda graphs: {} captures all that the other scopes name; use it alone", to_string(whole));
    }
}

void check_scopes_of_model(EnumSet<Scope> scopes, const ModelSpec& model, Problems& problems) {
    check_graph_scopes(scopes, problems);
    if (!scopes.empty() && !scopes.contains(Scope::full_iteration) && has_branches(model))
        problems.add(
            "cuda graphs: layers of {} mix tokens in several branches, which no graph of layers captures; use full_iteration or none",
            model.name);
    if (scopes.contains(Scope::mamba) && !has_mamba_layers(model))
        problems.add("cuda graphs: mamba needs Mamba layers, but {} has none; use attn, mlp or layer", model.name);
    if (scopes.contains(Scope::mlp) && !has_dense_mlp(model))
        problems.add("cuda graphs: mlp needs layers with a dense MLP, but {} has none; use {}", model.name,
                     model.moe ? "moe_router or moe" : "attn, mamba or none");
    if (!model.moe) {
        for (const Scope scope : {Scope::moe, Scope::moe_router}) {
            if (scopes.contains(scope))
                problems.add("cuda graphs: {} needs experts, but {} has none; use attn, mlp or layer", to_string(scope), model.name);
        }
        return;
    }
    const MoeSpec& moe = *model.moe;
    if (scopes.contains(Scope::moe_preprocess) && moe.capacity_factor > 0 && !moe.pad_to_capacity)
        problems.add(
            "cuda graphs: moe_preprocess with capacity factor = {} and no padding reads on the host how many tokens are left; pad to "
            "capacity, or drop moe_preprocess",
            moe.capacity_factor);
}

void check_scopes_of_dispatcher(EnumSet<Scope> scopes, const ModelSpec& model, TokenDispatcher dispatcher, Problems& problems,
                                bool offer_hybrid_ep) {
    if (!model.moe) return;
    const bool padded = model.moe->capacity_factor > 0 && model.moe->pad_to_capacity;
    for (const Scope scope : {Scope::moe, Scope::layer, Scope::full_iteration}) {
        if (!scopes.contains(scope)) continue;
        if (!padded && dispatcher != TokenDispatcher::hybrid_ep)
            problems.add(
                "cuda graphs: {} captures the experts of {}, whose token counts {}; pad the experts to capacity (capacity_factor and "
                "pad_to_capacity), {} attn,moe_router,moe_preprocess",
                to_string(scope), model.name,
                dispatcher == TokenDispatcher::all_gather ? "differ from step to step" : "the dispatcher reads on the host",
                offer_hybrid_ep ? "use the dispatcher hybridep, or" : "or use");
        else if (padded && dispatcher != TokenDispatcher::all_to_all)
            problems.add(
                "cuda graphs: {} captures experts padded to capacity with the all_to_all dispatcher alone; use that, or "
                "attn,moe_router",
                to_string(scope));
    }
}

void check_graph_scopes(EnumSet<Scope> scopes, const ModelSpec& model, Problems& problems) {
    check_scopes_of_model(scopes, model, problems);
    if (model.moe) check_scopes_of_dispatcher(scopes, model, model.moe->dispatcher, problems);
}

bool captures_experts(EnumSet<Scope> scopes) {
    return scopes.contains(Scope::moe) || scopes.contains(Scope::layer) || scopes.contains(Scope::full_iteration);
}

std::optional<std::string> graph_recompute_problem(EnumSet<Scope> scopes, Recompute recompute, EnumSet<RecomputeModule> modules,
                                                   const ModelSpec& model) {
    if (scopes.empty() || recompute == Recompute::none) return std::nullopt;
    const bool iteration = scopes.contains(Scope::full_iteration);
    if (recompute == Recompute::full) {
        if (iteration) return std::nullopt;
        return "cuda graphs of single layers cannot hold full recompute, which runs across them; use --recompute none or selective, or "
               "--cuda-graphs full_iteration";
    }
    if (modules.contains(RecomputeModule::moe) && scopes.contains(Scope::moe_router))
        return "cuda graphs: moe_router cuts through the moe module that is recomputed; drop moe from --recompute-modules, or moe_router";
    const bool whole = iteration || scopes.contains(Scope::layer);
    if (model.attention_dropout > 0 && modules.contains(RecomputeModule::core_attn) && (whole || scopes.contains(Scope::attn)))
        return fmt::format(
            "cuda graphs: core_attn is recomputed inside a graph, which cannot draw the attention dropout = {} again; drop "
            "core_attn from --recompute-modules, or attention from the graphs",
            model.attention_dropout);
    const bool mlp = modules.contains(RecomputeModule::mlp) && (whole || scopes.contains(Scope::mlp));
    const bool experts = modules.contains(RecomputeModule::moe) && (whole || scopes.contains(Scope::moe));
    if (model.hidden_dropout > 0 && (mlp || experts))
        return fmt::format(
            "cuda graphs: {} is recomputed inside a graph, which cannot draw the hidden dropout = {} again; drop it from "
            "--recompute-modules, or from the graphs",
            mlp ? "mlp" : "moe", model.hidden_dropout);
    return std::nullopt;
}

bool has_mamba_layers(const ModelSpec& model) {
    return has_mixer(model, [](const Mixer& mixer) { return scope_of(mixer) == Scope::mamba; });
}

EnumSet<Scope> usual_graph_scopes(const ModelSpec& model) {
    if (!model.moe) return {Scope::layer};
    const bool padded =
        model.moe->capacity_factor > 0 && model.moe->pad_to_capacity && model.moe->dispatcher == TokenDispatcher::all_to_all;
    if (padded) return {Scope::layer};
    EnumSet<Scope> scopes{Scope::attn, Scope::moe_router};
    if (model.moe->capacity_factor == 0) scopes.add(Scope::moe_preprocess);
    if (has_mamba_layers(model)) scopes.add(Scope::mamba);
    if (has_dense_mlp(model)) scopes.add(Scope::mlp);
    return scopes;
}

CapturedHalves captured_halves(EnumSet<Scope> scopes, const Layer& layer) {
    return captured(scopes, layer.mixer ? &*layer.mixer : nullptr, layer.feed_forward ? &*layer.feed_forward : nullptr);
}

CapturedHalves captured_halves(EnumSet<Scope> scopes, const LayerKinds& kinds, const LayerKindHalves& kind) {
    const auto at = [](const std::vector<LayerHalf>& halves, int index) {
        return index == LayerKindHalves::kNone ? nullptr : &halves[static_cast<std::size_t>(index)].layer;
    };
    const Layer *const mixer = at(kinds.mixers, kind.mixer), *const feed_forward = at(kinds.feed_forwards, kind.feed_forward);
    return captured(scopes, mixer != nullptr ? &*mixer->mixer : nullptr, feed_forward != nullptr ? &*feed_forward->feed_forward : nullptr);
}

std::vector<std::string> graph_boundary_tensors(EnumSet<Scope> scopes, bool shared_experts) {
    if (scopes.empty()) return {};
    if (scopes.contains(Scope::full_iteration)) return {"loss"};
    if (!scopes.contains(Scope::moe_router)) return {"hidden_states"};
    if (!scopes.contains(Scope::moe_preprocess)) return {"hidden_states", "probabilities", "routing_map"};
    std::vector<std::string> names{"permuted_hidden_states",   "probabilities",     "residual",
                                   "tokens_per_expert",        "input_splits",      "output_splits",
                                   "output_splits_tp",         "num_output_tokens", "global_tokens_per_local_expert",
                                   "reversed_permutation_map", "routing_map"};
    if (shared_experts) names.insert(names.end(), {"shared_experts_gate_score", "shared_experts_fc1_input"});
    return names;
}

}  // namespace mgplan
