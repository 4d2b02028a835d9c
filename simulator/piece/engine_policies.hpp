#pragma once
// Differences between Megatron-LM with Transformer Engine and mgplan's own runtime in memory: named changes to the trace of a layer.
// Everything not listed here is predicted by mgplan's own layers.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/device/memory.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Inputs of a policy.
struct PolicyContext {
    const ModelSpec& model;
    const Layer& layer;  ///< the traced one
    const TrainingSpec& training;
    const PieceSizes& sizes;
    [[nodiscard]] const MegatronSwitches& megatron() const { return training.megatron; }
    /// Values that a layout may switch: those of `training` and `layer` are of other layouts.
    [[nodiscard]] const LayerSwitches& switches() const { return sizes.switches; }
    // Halves of the layer; nullptr if it has others.
    [[nodiscard]] const Attention* attention() const { return mixer_as<Attention>(layer); }
    [[nodiscard]] const LatentAttention* latent() const { return mixer_as<LatentAttention>(layer); }
    [[nodiscard]] const Mixture* mixture() const { return feed_forward_as<Mixture>(layer); }
    // Members of softmax attention of either kind, which the layer has.
    [[nodiscard]] std::int64_t heads() const { return latent() != nullptr ? latent()->heads : attention()->heads; }
    [[nodiscard]] std::int64_t value_width() const { return latent() != nullptr ? latent()->v_head_dim : attention()->head_dim; }
    [[nodiscard]] const AttentionScores& scores() const { return latent() != nullptr ? latent()->scores : attention()->scores; }
};

class LayerEditor;

/// One difference. `module`, `tensor`, `dtype` and `source` are for readers (docs/memory-megatron.md lists the table).
struct EnginePolicy {
    std::string_view name;
    unsigned pieces;  ///< a bit for each piece that it changes
    std::string_view module;
    std::string_view tensor;
    std::string_view dtype;
    std::string_view source;
    bool (*holds)(const PolicyContext&);
    void (*apply)(LayerEditor&, const PolicyContext&);
};

/// The whole table, in the order in which policies are applied.
[[nodiscard]] std::span<const EnginePolicy> megatron_policies();

/// Inputs of a policy for a whole rank.
struct RankContext {
    PolicyContext layer;
    const Layout& layout;
    int pp_rank = 0;
    bool embedding = false, loss = false;  ///< over all chunks of the rank
    std::uint64_t kinds = 0;               ///< kinds of its decoder layers, a bit for each index (LayerKinds::without_window)
    std::int64_t stream = 0;               ///< bytes of the residual stream between stages
    std::int64_t linear_elements = 0;      ///< linear_elements() of its decoder layers
    std::int64_t offloaded_layer = 0;      ///< maximum bytes that one of its decoder layers leaves on the host
};

/// Elements of one weight of each shape in the linear layers of a rank. `held`: kinds of its layers, a bit for each index.
[[nodiscard]] std::int64_t linear_elements(const ModelSpec& model, const LayerKinds& kinds, std::int64_t tp, std::int64_t etp,
                                           std::uint64_t held);

/// One tensor, or one kind of tensor, that a rank holds at its peak in addition to its layers' traces.
struct RankPolicy {
    std::string_view name;
    std::string_view module;
    std::string_view tensor;
    std::string_view dtype;
    std::string_view source;
    model::MemoryCategory category;
    std::int64_t (*bytes)(const RankContext&);  ///< 0 if the policy does not apply
};

[[nodiscard]] std::span<const RankPolicy> megatron_rank_policies();

/// Changes the steps of mgplan's own layers to fp8 GEMMs as Transformer Engine runs them: the assumption for engine mgplan if it does not
/// run fp8 itself (plan/training/own_fp8.hpp).
void apply_fp8_rates(PieceTrace& trace, const PolicyContext& context);

/// Changes a trace of mgplan's layers into that of Megatron-LM's. Afterwards times are no longer dense.
void apply_megatron_policies(PieceTrace& trace, const PolicyContext& context);

}  // namespace mgplan::simulator
