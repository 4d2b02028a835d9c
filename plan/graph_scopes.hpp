#pragma once
// What the scopes of --cuda-graphs mean: which go together, which layers they capture, and which tensors leave a graph
// for work that stays outside. Rules as in Megatron-LM (training/arguments.py, core/transformer/cuda_graphs.py
// _layer_is_graphable).

#include <string>
#include <vector>

#include "plan/errors.hpp"
#include "plan/layout.hpp"
#include "plan/model_spec.hpp"
#include "plan/parameters.hpp"

namespace mgplan {

/// Adds a problem for each rule that the scopes break by themselves (moe_preprocess without moe_router, …).
void check_graph_scopes(EnumSet<CudaGraphScope> scopes, Problems& problems);

/// The same, and what they ask for that the model has not.
void check_graph_scopes(EnumSet<CudaGraphScope> scopes, const ModelSpec& model, Problems& problems);

/// Whether a layer of this kind has a graph of its own. full_iteration captures no single layer.
[[nodiscard]] bool captures_layer(EnumSet<CudaGraphScope> scopes, LayerKind kind);

/// Names of the tensors that graphs of MoE layers hand to dispatch and experts, which run outside: static outputs. None where
/// the layer is captured up to its end. `shared_experts`: those overlap with the dispatch and hand over two more.
[[nodiscard]] std::vector<std::string> graph_boundary_tensors(EnumSet<CudaGraphScope> scopes, bool shared_experts);

}  // namespace mgplan
