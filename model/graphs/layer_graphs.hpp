#pragma once
// The CUDA graphs of one rank: the captured parts of its layers, and their forwards and backwards, one for each
// layer of each (chunk, slot) pair (plan/graphs/graph_slots.hpp). The same class on every device: on shapes it counts.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/graphs/captured_pass.hpp"
#include "model/graphs/graph_totals.hpp"
#include "plan/layout/layout.hpp"

namespace mgplan::model {

/// Part of a decoder layer that is in one graph.
enum class GraphedPart : std::uint8_t {
    none,
    attention,         ///< its norm, attention and residual addition
    mlp,               ///< the same of a dense MLP, or of an MoE layer padded to capacity
    whole,             ///< both
    router,            ///< of an MoE layer the part given by ChosenUpTo (model/layers/moe.hpp)
    attention_router,  ///< the attention and that
};

/// Returns the captured part of a layer with a dense MLP, or of an MoE layer.
[[nodiscard]] GraphedPart graphed_part(EnumSet<CudaGraphScope> scopes, bool mixture);
/// Return true if the layer's input is the graph's input, and if its output is the graph's output.
[[nodiscard]] constexpr bool begins_layer(GraphedPart part) {
    return part == GraphedPart::attention || part == GraphedPart::whole || part == GraphedPart::attention_router;
}
[[nodiscard]] constexpr bool ends_layer(GraphedPart part) {
    return part == GraphedPart::mlp || part == GraphedPart::whole;
}
/// Returns true if the graph ends inside an MoE layer.
[[nodiscard]] constexpr bool ends_at_router(GraphedPart part) {
    return part == GraphedPart::router || part == GraphedPart::attention_router;
}

/// One layer in one slot.
struct GraphPlace {
    std::int64_t slot = 0;
    int chunk = 0;
    std::int64_t layer = 0;  ///< global number
    auto operator<=>(const GraphPlace&) const = default;
};

/// An output of a forward graph. `name`: a literal, of which the simulator has the same (simulator/memory/cuda_graphs.hpp);
/// empty for one that goes into another graph alone.
struct GraphOutput {
    std::string_view name;
    Tensor tensor;  ///< may be undefined
};

/// The first step runs eagerly, so that libraries choose their algorithms and load their kernels; then each pass is captured
/// when it is first met, and replayed from there on. So all captured work must have been run before: products that write a gradient and
/// products that add to it are two kinds, and RankTrainer makes the first step have those that add.
class LayerGraphs {
public:
    /// `random`: the layers draw random numbers, so that seed and offset lie in device memory.
    LayerGraphs(Device& device, EnumSet<CudaGraphScope> scopes, bool random);
    LayerGraphs(const LayerGraphs&) = delete;
    LayerGraphs& operator=(const LayerGraphs&) = delete;
    ~LayerGraphs();

    [[nodiscard]] GraphedPart part(bool mixture) const { return graphed_part(scopes_, mixture); }
    /// Returns true if a graph that ends at the router also holds the dispatcher's first half.
    [[nodiscard]] bool captures_preprocess() const { return scopes_.contains(CudaGraphScope::moe_preprocess); }

    void begin_step() { ++steps_; }
    /// Returns true if this step's passes are captured or replayed, not run eagerly.
    [[nodiscard]] bool replays() const { return steps_ > 1; }

    /// (4) int32: seed and first sequence of the microbatch whose pass runs, low words first; undefined without dropout.
    [[nodiscard]] const Tensor& changing() const { return changing_; }
    /// Before each pass of a chunk.
    void write_changing(std::uint64_t dropout_seed, std::int64_t first_sequence);

    using ForwardBody = std::function<std::vector<GraphOutput>(const Tensor& x)>;
    /// Runs `body` on x, captures or replays it. Returns its outputs in their order. `memory` belongs to the microbatch.
    [[nodiscard]] std::vector<Tensor> forward(const GraphPlace& place, const Tensor& x, PassMemory& memory, const ForwardBody& body);
    /// `gradients`: all defined.
    [[nodiscard]] Tensor backward(const GraphPlace& place, std::vector<Tensor> gradients, PassMemory& memory, const PassBody& body);

    [[nodiscard]] GraphTotals totals() const;

private:
    struct Pair {
        CapturedPass forward, backward;
        KnownStorages known;
        std::int64_t input_bytes = 0;
        std::vector<std::pair<std::string_view, std::int64_t>> boundary;  ///< name and bytes
        bool seen_forward = false, seen_backward = false;
    };

    Device& device_;
    EnumSet<CudaGraphScope> scopes_;
    Tensor changing_;
    std::int64_t steps_ = 0;
    std::map<GraphPlace, Pair> pairs_;
};

}  // namespace mgplan::model
