#pragma once
// Memory that CUDA graphs add to a rank: static inputs, boundary tensors, graph objects, and activations that stay allocated while no
// microbatch uses them. A pure function of layout, shard and schedule; docs/memory-graphs.md explains it.
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
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// One tensor at a fixed address, of one layer and microbatch on one rank. Tensors that the layout does not use (splits without ranks to
/// send to, a gate that the model lacks) have 0 bytes.
struct StaticTensor {
    std::string_view name;
    std::vector<std::int64_t> shape;
    std::string_view dtype;   ///< "bf16", "fp32", "int64", "int32", "bool", …
    std::int64_t bytes = 0;   ///< 0 also if it is an alias of the graph's own input
    std::string_view source;  ///< the Megatron-LM file that defines the tensor
    bool kept = false;        ///< the backward needs it with and without graphs: it moves, and adds no memory
    bool real = false;        ///< floating point, with a gradient
};

/// One kind of layer as captured by graphs.
struct GraphedLayer {
    CapturedHalves halves;
    std::vector<StaticTensor> inputs, boundary;
    std::size_t outputs_like = 0;      ///< index of the first kind whose outputs with gradients have the same shapes
    bool starts_layer = false;         ///< begins at the layer's first norm
    bool ends_layer = false;           ///< ends with the layer: its output is the next one's input
    std::int64_t saved = 0;            ///< activations inside the scope kept for the backward, including input and kept outputs
    std::int64_t outside = 0;          ///< kept boundary tensors that eager work of the layer after the graph would keep
    std::int64_t transient = 0;        ///< further bytes during its backward
    std::int64_t eager_transient = 0;  ///< further bytes during the backward of the part outside the graph
};

/// Kernels of these halves.
[[nodiscard]] KernelCounts kernels_in(const CapturedHalves& halves, const LayerCosts::Layer& layer);

/// The captured part of a kind of layer, without kept bytes and kernels. `policy` megatron: with the inputs that Megatron-LM gives its
/// graphs.
[[nodiscard]] GraphedLayer graphed_layer(const Workload& workload, const Layout& layout, const LayerKinds& kinds, std::size_t kind,
                                         GraphPolicy policy);

/// Captured parts of the kinds of layers with one shard.
struct GraphedLayers {
    PieceBytes bytes;
    std::vector<GraphedLayer> kinds;  ///< by LayerKinds::kinds
};

/// Captured parts of all kinds with their kept bytes. `bytes`: of the layout's shard (ActivationMemory::pieces).
[[nodiscard]] GraphedLayers graphed_layers(const Workload& workload, const Layout& layout, const LayerKinds& kinds, PieceBytes bytes);

/// Bytes of one name on one rank, over all layers and slots.
struct BoundaryBytes {
    std::string_view name;
    std::int64_t bytes = 0;
};

/// Memory of one rank's graphs.
struct GraphTerms {
    std::int64_t static_inputs = 0;
    std::vector<BoundaryBytes> boundary;
    std::int64_t boundary_bytes = 0;  ///< their sum
    std::int64_t nodes = 0;           ///< kernel nodes of all graphs
    std::int64_t objects = 0;         ///< nodes · GraphInputs::node_bytes
    std::int64_t activations = 0;     ///< change of the activations at the peak; often negative, because tensors move
    std::int64_t pool = 0;            ///< bytes of megatron's private pool: activations, temporaries and outputs of all graphs
    std::int64_t resident = 0;        ///< activations that stay while no microbatch is alive, as during the optimizer's update
    bool pool_is_private = false;     ///< true if the update can reuse no memory of the passes (megatron, full_iteration)
};

struct GraphInputs {
    const Workload& workload;
    const Layout& layout;      ///< engine megatron: policy megatron; otherwise slots
    const LayerCosts& layers;  ///< source of the kernel counts
    const LayerKinds& kinds;
    const GraphedLayers& graphed;         ///< graphed_layers() of the layout
    std::span<const ChunkCensus> chunks;  ///< chunks of the rank
    std::span<const std::int64_t> alive;  ///< microbatches of each chunk at the rank's peak (live_at_peak)
    const GraphResidency& residency;
    std::int64_t node_bytes;  ///< Calibration::graph_node_bytes
};

[[nodiscard]] GraphPolicy policy_of(const Layout& layout);

/// All zero without scopes.
[[nodiscard]] GraphTerms graph_terms(const GraphInputs& in);

/// Bytes at a rank's peak that a framework's allocator does not report as allocated. Megatron-LM's graphs use a private pool whose blocks
/// PyTorch counts as free after the capture (Transformer Engine drops its references to outputs and gradients, and autograd those to
/// activations), although replays use them and nothing else may: only the static inputs stay allocated. During the capture the whole pool
/// is allocated, but no eager activation is alive.
[[nodiscard]] std::int64_t hidden_by_graphs(const GraphTerms& terms, const MemoryBreakdown& at_peak);

/// Cost of padding each expert to the same number of tokens for whole-layer capture of a MoE layer, relative to dropless balanced routing,
/// on one rank for one layer and microbatch: bytes kept for the backward, FLOPs and traffic forward and backward.
struct PaddingCost {
    double capacity_factor = 1;
    std::int64_t capacity = 0;     ///< tokens of one expert from one rank: ceil(tokens · top_k · factor / experts)
    std::int64_t sent_rows = 0;    ///< tokens that one rank sends, padding included
    std::int64_t extra_rows = 0;   ///< further tokens that its experts process
    std::int64_t extra_bytes = 0;  ///< activations of the experts
    double extra_flops = 0;
    std::int64_t extra_traffic = 0;  ///< bytes sent in dispatch and combine
};

/// The model must have experts.
[[nodiscard]] PaddingCost padding_cost(const Workload& workload, const Layout& layout, double capacity_factor);

}  // namespace mgplan::simulator
