#pragma once
// Memory of any layout of one workload: model state, the passes, CUDA graphs and what lies outside the framework, put together
// per pipeline stage.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/memory/rank_timeline.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// Peak bytes of the fullest rank.
struct LayoutPeaks {
    std::int64_t even = 0;      ///< where tokens are spread evenly over experts: predict(layout, false).worst.peak_bytes()
    std::int64_t deciding = 0;  ///< what has to fit: predict(layout, false).deciding_bytes(); never less
    /// Bytes of the fullest stage when tokens are spread evenly. The rest of `even` lies outside the framework or in its libraries.
    std::int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0;
    /// Bytes that a node's memory lacks for what its ranks leave there; 0 where `even` exceeds what was asked for, and nothing was looked
    /// at.
    std::int64_t host_missing = 0;
};

class ShardLayers;
class ModelStates;
class ReplayMemo;
class SharedSchedules;
class SplitStages;

/// What is computed once elsewhere, for time too or for other switches of the same model.
struct SharedByLayouts {
    std::function<const SplitCensus&(const Layout&)> census;
    ShardLayers* layers;         ///< recordings of the layers
    ModelStates* states;         ///< of workloads with equal types of gradients and moments
    SplitStages* splits;         ///< of this thread
    SharedSchedules* schedules;  ///< of all threads
    ReplayMemo* replays;         ///< of this thread
};

/// Not thread-safe: each thread owns one. Workload, calibration and what `shared` refers to must outlive it. Layouts must be
/// valid (planner/constraints.hpp). `layers` of its functions: costs of the layout's layers, whose kernels CUDA graphs hold, the same
/// object for all layouts with the same costs; null where the layout has no graphs.
class LayoutMemory {
public:
    LayoutMemory(const Workload& workload, const Calibration& calibration, SharedByLayouts shared);
    ~LayoutMemory();
    LayoutMemory(const LayoutMemory&) = delete;
    LayoutMemory& operator=(const LayoutMemory&) = delete;

    /// The fullest rank with all its terms. `replayed`: the fragmentation of engine megatron without CUDA graphs is that of PyTorch's
    /// allocator, played on the rank's tensors (tens of milliseconds); else, as in peaks(), a thirty-second of them.
    [[nodiscard]] MemoryPrediction predict(const Layout& layout, bool replayed, const LayerCosts* layers);
    /// The same with the allocators replayed, or nothing where one is found to exceed `limit`.
    [[nodiscard]] std::optional<MemoryPrediction> predict_replayed(const Layout& layout, std::int64_t limit, const LayerCosts* layers);
    /// The peaks alone. Where the model state of a stage alone exceeds `most`, its sum stands for both peaks and no activation is
    /// looked at; where the even peak exceeds it, that one stands for the deciding one too.
    [[nodiscard]] LayoutPeaks peaks(const Layout& layout, std::int64_t most, const LayerCosts* layers);
    /// Whether that is so: peaks() then needs no costs of layers.
    [[nodiscard]] bool state_exceeds(const Layout& layout, std::int64_t most);
    /// What the fullest stage needs at least beside what its passes keep and take: never more than peaks() of a layout that differs in CUDA
    /// graphs, or in recompute that keeps no more of gathered weights (without_tail()).
    [[nodiscard]] std::int64_t least_bytes_of_state(const Layout& layout);
    /// What the first stage needs at least where tokens are spread evenly: never more than peaks(layout).even, and found without the
    /// prices of layers. Other workloads whose layers keep the same and whose parameters, gradients and optimizer state are no smaller need
    /// no less. `everywhere`: the same of the fullest stage, and where tokens are spread as at p99 of the routing skew (never more than
    /// peaks(layout).deciding), for as many times the work as there are stages; or some bytes that exceed `enough`.
    [[nodiscard]] std::int64_t least_bytes(const Layout& layout, bool everywhere, std::int64_t enough);
    /// Every rank of a pipeline stage, its fragmentation replayed.
    [[nodiscard]] RankMemory stage(const Layout& layout, int pp_rank, const LayerCosts* layers);
    /// The ops of a stage's ranks as engine megatron has them, without CUDA graphs: for play() with no sends left open, whose
    /// peak is that of stage().
    [[nodiscard]] RankProbe megatron_ops(const Layout& layout, int pp_rank);
    /// PyTorch's allocator played over iterations of engine megatron on a stage's rank, tensor by tensor.
    [[nodiscard]] ReservedMemory replay_megatron(const Layout& layout, int pp_rank);
    /// Activations of a microbatch that wait in the host's memory (MegatronSwitches::offloaded_layers), bytes.
    [[nodiscard]] std::int64_t offloaded_bytes(const Layout& layout);
    /// What modules of a layer leave in the host's memory, by index of its kind (OffloadSpec::modules), bytes.
    [[nodiscard]] const std::vector<std::int64_t>& offloaded_by_kind(const Layout& layout);
    /// What CUDA graphs add to the ranks of a pipeline stage.
    [[nodiscard]] GraphTerms graphs(const Layout& layout, int pp_rank, const LayerCosts* layers);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
