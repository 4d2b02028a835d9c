#include "plan/graph_scopes.hpp"

#include <algorithm>

namespace mgplan {

using Scope = CudaGraphScope;

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

void check_graph_scopes(EnumSet<Scope> scopes, const ModelSpec& model, Problems& problems) {
    check_graph_scopes(scopes, problems);
    if (!model.moe) {
        for (const Scope scope : {Scope::moe, Scope::moe_router}) {
            if (scopes.contains(scope))
                problems.add("cuda graphs: {} needs experts, but {} has none; use attn, mlp or layer", to_string(scope), model.name);
        }
        return;
    }
    const bool dense_layers = std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end();
    if (scopes.contains(Scope::mlp) && !dense_layers)
        problems.add("cuda graphs: mlp needs layers with a dense MLP, but {} has none; use moe_router or moe", model.name);
}

bool captures_layer(EnumSet<Scope> scopes, LayerKind kind) {
    if (scopes.contains(Scope::layer) || scopes.contains(Scope::attn)) return true;
    return kind == LayerKind::dense ? scopes.contains(Scope::mlp) : scopes.contains(Scope::moe) || scopes.contains(Scope::moe_router);
}

std::vector<std::string> graph_boundary_tensors(EnumSet<Scope> scopes, bool shared_experts) {
    if (!scopes.contains(Scope::moe_router)) return {};
    if (!scopes.contains(Scope::moe_preprocess)) return {"hidden_states", "probabilities", "routing_map"};
    std::vector<std::string> names{"permuted_hidden_states",   "probabilities",     "residual",
                                   "tokens_per_expert",        "input_splits",      "output_splits",
                                   "output_splits_tp",         "num_output_tokens", "global_tokens_per_local_expert",
                                   "reversed_permutation_map", "routing_map"};
    if (shared_experts) names.insert(names.end(), {"shared_experts_gate_score", "shared_experts_fc1_input"});
    return names;
}

}  // namespace mgplan
