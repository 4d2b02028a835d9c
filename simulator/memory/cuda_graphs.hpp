#pragma once
// What CUDA graphs add to a rank's memory: static inputs, boundary tensors, graph objects, and activations that stay
// allocated although no microbatch is in them. A pure function of layout, shard and schedule; docs/memory-graphs.md explains it.
//
// Sources: Megatron-LM core/transformer/cuda_graphs.py (TECudaGraphHelper), transformer_layer.py
// (get_layer_static_inputs, _te_cuda_graph_capture, _te_cuda_graph_replay), moe/moe_layer.py, moe/token_dispatcher.py
// (cudagraph_attrs), core/full_cuda_graph.py; Transformer Engine pytorch/graph.py (make_graphed_callables with
// _reuse_graph_input_output_buffers).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/graphs/graph_residency.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// One tensor at a fixed address, of one layer and microbatch on one rank. What the layout has no use for (splits without
/// ranks to send to, a gate that the model has not) has 0 bytes.
struct StaticTensor {
    std::string_view name;
    std::vector<std::int64_t> shape;
    std::string_view dtype;   ///< "bf16", "fp32", "int64", "int32", "bool", …
    std::int64_t bytes = 0;   ///< 0 too where it is the graph's own input once more
    std::string_view source;  ///< the Megatron-LM file whose tensor this is
    bool kept = false;        ///< the backward needs it with and without graphs: it moves, and is not added
    bool real = false;        ///< floating point that gradients come back for
};

/// A kind of layer as a graph sees it.
struct GraphedLayer {
    bool captured = false;
    std::vector<StaticTensor> inputs, boundary;
    bool whole = false;                ///< captured from its first norm to its last addition: its output is the next one's input
    bool to_router = false;            ///< ends behind the router, or the dispatcher's first half
    bool from_norm = false;            ///< begins at the attention's norm
    std::int64_t saved = 0;            ///< activations inside the scope kept for the backward, input and kept outputs included
    std::int64_t outside = 0;          ///< kept boundary tensors that eager work behind the graph would keep
    std::int64_t transient = 0;        ///< further bytes during its backward
    std::int64_t eager_transient = 0;  ///< the same of the part that stays outside
    int kernels_forward = 0, kernels_backward = 0;
};

/// The captured part of a kind of layer without its tensors at fixed addresses and what it keeps and takes: quick to make.
[[nodiscard]] GraphedLayer captured_part(EnumSet<CudaGraphScope> scopes, const LayerCosts& costs, LayerKind kind);

/// How scopes meet a kind of layer, without what it keeps and takes. `policy` megatron: with the inputs that Megatron-LM gives
/// its graphs.
[[nodiscard]] GraphedLayer graphed_layer(const Workload& workload, const Layout& layout, const LayerCosts& costs, LayerKind kind,
                                         GraphPolicy policy);

/// Sets saved, transient and eager_transient.
void take_bytes(GraphedLayer& layer, const PieceBytes& bytes, LayerKind kind);

/// What CUDA graphs make of kinds of layers with one shard.
struct GraphedLayers {
    PieceBytes bytes;
    EnumSet<CudaGraphScope> scopes;
    GraphedLayer dense, mixture;
};

/// Bytes of one name on one rank, all layers and slots together.
struct BoundaryBytes {
    std::string_view name;
    std::int64_t bytes = 0;
};

/// One rank's graphs.
struct GraphTerms {
    std::int64_t static_inputs = 0;
    std::vector<BoundaryBytes> boundary;
    std::int64_t boundary_bytes = 0;  ///< their sum
    std::int64_t nodes = 0;           ///< kernel nodes of all graphs
    std::int64_t objects = 0;         ///< nodes · GraphInputs::node_bytes
    std::int64_t activations = 0;     ///< what the graphs change in the activations at the peak; often negative, for tensors move
    std::int64_t pool = 0;            ///< of megatron's private pool: activations, temporaries and outputs of all graphs
    std::int64_t resident = 0;        ///< activations that stay when no microbatch is alive, as during the optimizer's update
    bool pool_is_private = false;     ///< nothing that the passes used is free during the update (megatron, full_iteration)
};

struct GraphInputs {
    const Workload& workload;
    const Layout& layout;                 ///< engine megatron: policy megatron; else slots
    const LayerCosts& layers;             ///< whose kernels are counted
    const PieceBytes& bytes;              ///< of the layout's shard (ActivationMemory::pieces)
    const GraphedLayer &dense, &mixture;  ///< graphed_layer() and take_bytes() of both kinds
    std::span<const ChunkCensus> chunks;  ///< the rank's
    std::span<const std::int64_t> alive;  ///< microbatches of each chunk at the rank's peak (live_at_peak)
    const GraphResidency& residency;
    std::int64_t node_bytes;  ///< Calibration::graph_node_bytes
};

[[nodiscard]] GraphPolicy policy_of(const Layout& layout);

/// All zero without scopes.
[[nodiscard]] GraphTerms graph_terms(const GraphInputs& in);

/// Bytes at a rank's peak that a framework's allocator does not report as allocated. Megatron-LM's graphs work
/// in a private pool whose blocks are free in PyTorch's books once captured (Transformer Engine drops its references to
/// outputs and gradients, and autograd those to activations), although replays use them and nobody else may: only the
/// static inputs stay allocated. At the capture itself everything in the pool is, but no eager activation is alive.
[[nodiscard]] std::int64_t hidden_by_graphs(const GraphTerms& terms, const MemoryBreakdown& at_peak);

/// Whole-layer capture of a mixture pads each expert to the same number of rows. What that costs one rank over dropless
/// balanced routing, for one layer and microbatch (bytes: kept for the backward) and in FLOPs and traffic forward and
/// backward.
struct PaddingCost {
    double capacity_factor = 1;
    std::int64_t capacity = 0;     ///< rows of one expert from one rank: ceil(tokens · top_k · factor / experts)
    std::int64_t sent_rows = 0;    ///< rows that one rank sends, padding included
    std::int64_t extra_rows = 0;   ///< of the rows its experts process
    std::int64_t extra_bytes = 0;  ///< activations of the experts
    double extra_flops = 0;
    std::int64_t extra_traffic = 0;  ///< bytes sent in dispatch and combine
};

/// The model must have experts.
[[nodiscard]] PaddingCost padding_cost(const Workload& workload, const Layout& layout, double capacity_factor);

}  // namespace mgplan::simulator
