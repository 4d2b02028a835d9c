#pragma once
// What the layers of one shard of a model allocate, for any layout of one workload: traces of its pieces under the engine's
// policies, and their profiles, each made once.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_weights.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Traces of a shard, after the engine's policies.
struct ShardTraces {
    std::vector<PieceTrace> plain;         ///< of LayerKinds::plain_layers: embedding, mixer, dense MLP, norm and loss
    const LayerKinds* kinds = nullptr;     ///< of the model; they last as long as the ShardLayers
    std::optional<PieceTrace> mixture;     ///< of models with experts
    std::optional<PieceTrace> prediction;  ///< of models with multi-token prediction: its parts, as the layout recomputes them
    std::int64_t stream = 0;               ///< bytes of the residual stream
    std::int64_t ids = 0;                  ///< bytes of a microbatch's token ids
    /// Traces of layers whose products stay in 16 bits (LayerKindHalves::in_bf16); null where there are none beside quantised ones.
    std::shared_ptr<const ShardTraces> in_bf16{};
};

/// A trace of its own, or one that others keep.
using TracePointer = std::shared_ptr<const PieceTrace>;

/// Not thread-safe. The workload must outlive it. Layouts must be valid.
class ShardLayers {
public:
    explicit ShardLayers(const Workload& workload);
    /// With the recordings of `others`, of a workload that differs in nothing but what LayoutSwitches change: no recording sees these. Of
    /// an equal workload with their profiles too. Another thread may have the others.
    enum class Workloads : std::uint8_t { switched, equal };
    ShardLayers(const Workload& workload, const ShardLayers& others, Workloads which);
    ~ShardLayers();
    ShardLayers(const ShardLayers&) = delete;
    ShardLayers& operator=(const ShardLayers&) = delete;

    [[nodiscard]] const LayerKinds& kinds() const;
    /// Layers of the same workload in bf16: those whose products stay in 16 bits. Null where nothing is quantised, or all is.
    [[nodiscard]] const std::shared_ptr<ShardLayers>& in_bf16() const;
    [[nodiscard]] PieceSizes sizes(const Layout& layout) const;

    /// Received rows over the even split's at which mixtures are traced: node 0 is the even split, the last the most there can
    /// be. Between two nodes bytes are interpolated: a peak is the largest of sums that grow with the rows, so that the chord lies
    /// above it.
    static constexpr std::size_t kNodes = 4;
    [[nodiscard]] double received_at(const Layout& layout, int node) const;
    /// The reference lasts as long as this object.
    [[nodiscard]] const ShardProfiles& profiles(const Layout& layout, int node);
    /// Bytes of inputs that a forward through a layer leaves in the host's memory, by index of its kind.
    /// The reference lasts as long as this object.
    [[nodiscard]] const std::vector<std::int64_t>& host_bytes(const Layout& layout);
    /// What chunks of the shard are weighed by, as if made of profiles(): quickly, into `steps`. `recomputed`: predictions are.
    void steps(const Layout& layout, bool recomputed, int node, StepDeltas& steps);
    /// router_part() of the layout's shard, for a model with mixtures and rows spread evenly.
    [[nodiscard]] KeptAndTaken router_part(const Layout& layout);
    /// Records with their steps under the engine's policies, for who prices them: made anew at each call, or of the recordings that all
    /// share, which last as long as the last ShardLayers that has them.
    /// Dense pieces (embedding, mixer, dense MLP, norm and loss) of one of LayerKinds::plain_layers: a ring of more than four ranks
    /// has the four parts that stand for it, or two of as many rows each.
    enum class RingParts : std::uint8_t { all, two };
    [[nodiscard]] TracePointer dense_steps(const PieceSizes& shard, std::size_t plain_layer, RingParts parts = RingParts::all);
    [[nodiscard]] TracePointer prediction_steps(const PieceSizes& shard);
    /// `received` as of trace_mixture().
    [[nodiscard]] TracePointer mixture_steps(const PieceSizes& shard, double received);
    /// Made anew at each call, with rows spread evenly.
    [[nodiscard]] ShardTraces traces(const Layout& layout);

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Whether some layers' products stay in 16 bits and those of others do not.
[[nodiscard]] bool has_layers_in_bf16(const TrainingSpec& training);
/// The workload with no product quantised.
[[nodiscard]] Workload in_bf16(const Workload& workload);

}  // namespace mgplan::simulator
