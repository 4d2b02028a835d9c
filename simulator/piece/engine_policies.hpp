#pragma once
// How Megatron-LM with Transformer Engine holds memory where mgplan's own runtime does otherwise: named changes to the trace
// of a layer. Everything not named here is predicted by mgplan's own layers.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/device/memory.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// What a policy may depend on.
struct PolicyContext {
    const ModelSpec& model;
    const TrainingSpec& training;
    const PieceSizes& sizes;
    const LayerPart* mixer = nullptr;  ///< of layers that parts describe; null where the model's fields do
    [[nodiscard]] const MegatronSwitches& megatron() const { return training.megatron; }
};

class LayerEditor;

/// One difference. `module`, `tensor`, `dtype` and `source` are for people (docs/memory-megatron.md lists the table).
struct EnginePolicy {
    std::string_view name;
    unsigned pieces;  ///< the bit of each piece that it concerns
    std::string_view module;
    std::string_view tensor;
    std::string_view dtype;
    std::string_view source;
    bool (*holds)(const PolicyContext&);
    void (*apply)(LayerEditor&, const PolicyContext&);
};

/// The whole table, in the order in which policies are applied.
[[nodiscard]] std::span<const EnginePolicy> megatron_policies();

/// What a policy about a whole rank may depend on.
struct RankContext {
    PolicyContext layer;
    const Layout& layout;
    int pp_rank = 0;
    bool embedding = false, loss = false;  ///< what the rank holds, over all its chunks
    std::uint64_t kinds = 0;               ///< of its decoder layers, a bit for each index (LayerKinds::without_window)
    std::int64_t stream = 0;               ///< bytes of the residual stream between stages
    std::int64_t linear_elements = 0;      ///< linear_elements() of its decoder layers
    std::int64_t offloaded_layer = 0;      ///< most bytes that one of its decoder layers leaves on the host
};

/// Elements of one weight of each shape among the linear layers of a rank that holds these kinds of layers, a bit for each index.
[[nodiscard]] std::int64_t linear_elements(const ModelSpec& model, const LayerKinds& kinds, std::int64_t tp, std::int64_t etp,
                                           std::uint64_t held);

/// One tensor, or one kind of tensor, that a rank holds at its peak beside what its layers' traces say.
struct RankPolicy {
    std::string_view name;
    std::string_view module;
    std::string_view tensor;
    std::string_view dtype;
    std::string_view source;
    model::MemoryCategory category;
    std::int64_t (*bytes)(const RankContext&);  ///< 0 where it does not hold
};

[[nodiscard]] std::span<const RankPolicy> megatron_rank_policies();

/// The steps of mgplan's own layers with products in fp8, as Transformer Engine would run them: what a prediction for engine mgplan
/// assumes where that one does not run fp8 (plan/training/own_fp8.hpp).
void apply_fp8_rates(PieceTrace& trace, const PolicyContext& context);

/// Changes a trace of mgplan's layers into that of Megatron-LM's. Afterwards times are no longer dense.
void apply_megatron_policies(PieceTrace& trace, const PolicyContext& context);

}  // namespace mgplan::simulator
