#pragma once
// Scopes of --cuda-graphs: which go together, which layers they capture, and which tensors leave a graph for work that stays outside. Rules
// as in Megatron-LM (training/arguments.py, core/transformer/cuda_graphs.py _layer_is_graphable).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {

/// Reads "none" (the empty set) or scopes with commas between them, as --cuda-graphs takes them.
[[nodiscard]] EnumSet<CudaGraphScope> read_graph_scopes(std::string_view text, Problems& problems);

/// Adds a problem for each rule that the scopes break by themselves (moe_preprocess without moe_router, …).
void check_graph_scopes(EnumSet<CudaGraphScope> scopes, Problems& problems);

/// The same, and adds a problem for each scope that needs layers the model does not have, with any token dispatcher.
void check_scopes_of_model(EnumSet<CudaGraphScope> scopes, const ModelSpec& model, Problems& problems);

/// Adds the problems of graphs with this dispatcher: a graph replays fixed shapes, so experts inside it need padding to capacity (or
/// hybrid_ep's static buffers); all other dispatchers read the split sizes of dropless routing on the host
/// (core/transformer/cuda_graph_config.py validate_moe_cuda_graph_support). None for models without experts. `offer_hybrid_ep`: true if the
/// job may use that dispatcher, which messages then name as the way out.
void check_scopes_of_dispatcher(EnumSet<CudaGraphScope> scopes, const ModelSpec& model, TokenDispatcher dispatcher, Problems& problems,
                                bool offer_hybrid_ep = true);

/// Both checks, with the model's own dispatcher.
void check_graph_scopes(EnumSet<CudaGraphScope> scopes, const ModelSpec& model, Problems& problems);

/// True if any layer's experts would be inside a graph: moe, layer or full_iteration.
[[nodiscard]] bool captures_experts(EnumSet<CudaGraphScope> scopes);

/// The reason why these scopes cannot be captured with this recompute; nothing if they can. Recomputed layers or modules must lie wholly
/// inside or wholly outside a graph, and inside draw no random numbers (core/transformer/transformer_config.py).
[[nodiscard]] std::optional<std::string> graph_recompute_problem(EnumSet<CudaGraphScope> scopes, Recompute recompute,
                                                                 EnumSet<RecomputeModule> modules, const ModelSpec& model);

/// True if a layer of the model is a MambaLayer of Megatron-core, which the scope mamba captures.
[[nodiscard]] bool has_mamba_layers(const ModelSpec& model);

/// Default scopes of `graphs`: whole layers, and of layers with experts all that static shapes allow.
[[nodiscard]] EnumSet<CudaGraphScope> usual_graph_scopes(const ModelSpec& model);

/// The scope that captures a mixer: mamba for that of a MambaLayer, attn for that of a TransformerLayer, whatever computes it.
[[nodiscard]] CudaGraphScope scope_of(const Mixer& mixer);

/// The halves of a layer that its own graph holds; none with full_iteration.
struct CapturedHalves {
    bool mixer = false, feed_forward = false;
    bool router = false;  ///< of a feed-forward of experts that run outside
    [[nodiscard]] bool any() const { return mixer || feed_forward || router; }
};
[[nodiscard]] CapturedHalves captured_halves(EnumSet<CudaGraphScope> scopes, const Layer& layer);
[[nodiscard]] CapturedHalves captured_halves(EnumSet<CudaGraphScope> scopes, const LayerKinds& kinds, const LayerKindHalves& kind);

/// Names of the tensors that graphs hand to what runs outside: static outputs. moe_router: to dispatch and experts;
/// otherwise the hidden states, and of full_iteration the loss. `shared_experts`: those overlap with the dispatch and
/// hand over two more. Names as in Megatron-LM; which of them mgplan's own graphs hand over, shapes and bytes:
/// simulator/memory/cuda_graphs.hpp.
[[nodiscard]] std::vector<std::string> graph_boundary_tensors(EnumSet<CudaGraphScope> scopes, bool shared_experts);

}  // namespace mgplan
