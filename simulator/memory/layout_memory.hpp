#pragma once
// Memory of any layout of one workload, per pipeline stage: the sum of model state, passes, CUDA graphs and memory outside the framework.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/allocator_history.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/memory/rank_timeline.hpp"

namespace mgplan::simulator {

/// Peak bytes of the fullest rank.
struct LayoutPeaks {
    std::int64_t even = 0;      ///< with tokens spread evenly over experts: predict(layout, false).worst.peak_bytes()
    std::int64_t deciding = 0;  ///< the value that must fit: predict(layout, false).deciding_bytes(); at least `even`
    /// Bytes of the fullest stage when tokens are spread evenly. The rest of `even` is outside the framework or in its libraries.
    std::int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0;
    /// Bytes by which the offloaded data of a node's ranks exceeds its host memory; 0, unchecked, if `even` exceeds the requested limit.
    std::int64_t host_missing = 0;
};

class ShardLayers;
class ModelStates;
class ReplayMemo;
class SharedSchedules;
class SplitStages;

/// Results shared with the time model and with other switches of the same model.
struct SharedByLayouts {
    ShardLayers* layers;         ///< recordings of the layers
    ModelStates* states;         ///< shared by workloads with equal dtypes of gradients and moments
    SplitStages* splits;         ///< owned by one thread
    SharedSchedules* schedules;  ///< shared by all threads
    ReplayMemo* replays;         ///< owned by one thread
};

/// Not thread-safe: use one per thread. Workload, calibration and the objects in `shared` must outlive it. Layouts must be valid
/// (planner/constraints.hpp). Argument `layers` of its functions: costs of the layout's layers, whose kernels CUDA graphs contain, the same
/// object for all layouts with equal costs; null if the layout has no graphs.
class LayoutMemory {
public:
    LayoutMemory(const Workload& workload, const Calibration& calibration, const SharedByLayouts& shared);
    ~LayoutMemory();
    LayoutMemory(const LayoutMemory&) = delete;
    LayoutMemory& operator=(const LayoutMemory&) = delete;

    /// The fullest rank with all its terms. `replayed`: for engine megatron without CUDA graphs fragmentation comes from a replay of
    /// PyTorch's allocator on the rank's tensors (tens of milliseconds); otherwise, as in peaks(), it is assumed to be 1/32 of them.
    [[nodiscard]] MemoryPrediction predict(const Layout& layout, bool replayed, const LayerCosts* layers);
    /// predict() with the allocators replayed, or nothing if one exceeds `limit`.
    [[nodiscard]] std::optional<MemoryPrediction> predict_replayed(const Layout& layout, std::int64_t limit, const LayerCosts* layers);
    /// Only the peaks. If the model state of a stage alone exceeds `most`, that sum is returned for both peaks without computing
    /// activations; if the even peak exceeds it, it is returned for the deciding peak too.
    [[nodiscard]] LayoutPeaks peaks(const Layout& layout, std::int64_t most, const LayerCosts* layers);
    /// Returns true if the model state of a stage alone exceeds `most`; peaks() then needs no costs of layers.
    [[nodiscard]] bool state_exceeds(const Layout& layout, std::int64_t most);
    /// Lower bound of the fullest stage's memory without its passes: at most peaks() of any layout that differs only in CUDA graphs, or in
    /// recompute that keeps no more gathered weights (without_tail()).
    [[nodiscard]] std::int64_t least_bytes_of_state(const Layout& layout);
    /// Lower bound of the first stage's memory with tokens spread evenly: at most peaks(layout).even, computed without costs of layers.
    /// Also a bound for workloads whose layers keep the same and whose parameters, gradients and optimizer state are no smaller.
    /// `everywhere`: bounds the fullest stage, also with tokens spread as at p99 of the routing skew (at most peaks(layout).deciding),
    /// which takes as many times the work as there are stages; or returns any bound above `enough`.
    [[nodiscard]] std::int64_t least_bytes(const Layout& layout, bool everywhere, std::int64_t enough);
    /// Memory of every rank of a pipeline stage, with replayed fragmentation.
    [[nodiscard]] RankMemory stage(const Layout& layout, int pp_rank, const LayerCosts* layers);
    /// Memory ops of a stage's ranks with engine megatron, without CUDA graphs: for play() with no open sends, which then has the peak of
    /// stage().
    [[nodiscard]] RankProbe megatron_ops(const Layout& layout, int pp_rank);
    /// Replays PyTorch's allocator over iterations of a stage's rank with engine megatron, tensor by tensor.
    [[nodiscard]] ReservedMemory replay_megatron(const Layout& layout, int pp_rank);
    /// replay_megatron(), event by event and with labels.
    [[nodiscard]] AllocatorHistory record_megatron(const Layout& layout, int pp_rank);
    /// Bytes of a microbatch's activations offloaded to the host (MegatronSwitches::offloaded_layers).
    [[nodiscard]] std::int64_t offloaded_bytes(const Layout& layout);
    /// Bytes that modules of a layer leave on the host, by index of the layer's kind (OffloadSpec::modules).
    [[nodiscard]] const std::vector<std::int64_t>& offloaded_by_kind(const Layout& layout);
    /// Memory that CUDA graphs add on the ranks of a pipeline stage.
    [[nodiscard]] GraphTerms graphs(const Layout& layout, int pp_rank, const LayerCosts* layers);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
