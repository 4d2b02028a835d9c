#pragma once
// Predicts memory and time of any layout of one workload; everything that layouts share is computed once.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/layout_memory.hpp"
#include "simulator/prediction.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "simulator/step_timeline.hpp"

namespace mgplan::simulator {

/// Largest number of passes, over all ranks, that is simulated event by event.
inline constexpr std::int64_t kMostReplayedPasses = std::int64_t{1} << 21;

/// One iteration, event by event, and the program it ran.
struct LayoutTimeline {
    std::shared_ptr<const PipelineProgram> program;
    StepTimeline step;
};

struct PieceSeconds;

/// Settings that a lower bound leaves open; all other settings are those of the layout.
struct BoundedChoices {
    std::vector<std::shared_ptr<const LayoutSwitches>> switches{nullptr};  ///< Layout::switches
    std::shared_ptr<const LayoutSwitches> narrowest;  ///< the element of `switches` with the narrowest gradients and moments
    bool graphs = false;                              ///< true if CUDA graphs are one of the open settings
};

/// Predicts layouts of one workload, each with its own switches applied. Not thread-safe: use one per thread. The workload must outlive it.
/// Layouts must be valid (planner/constraints.hpp).
class CostModel {
public:
    explicit CostModel(const Workload& workload);
    CostModel(const Workload& workload, const Calibration& calibration);
    /// For a further thread or sharding: shares the recordings and costs of `other`, whose workload is equal or differs only in the
    /// sharding of its state, on which layers do not depend.
    CostModel(const Workload& workload, const CostModel& other);
    ~CostModel();
    CostModel(const CostModel&) = delete;
    CostModel& operator=(const CostModel&) = delete;

    [[nodiscard]] const Workload& workload() const;
    /// Peak bytes without the time (LayoutMemory::peaks).
    [[nodiscard]] LayoutPeaks peaks(const Layout& layout, std::int64_t most = std::numeric_limits<std::int64_t>::max());
    /// Memory as the search judges it: predict_exactly().memory, but with assumed instead of replayed fragmentation.
    [[nodiscard]] MemoryPrediction memory(const Layout& layout);
    /// predict_exactly().memory without the time.
    [[nodiscard]] MemoryPrediction replayed_memory(const Layout& layout);
    /// replayed_memory(), or nothing if a stage takes more than `limit` bytes. Stops at the first replay that shows it.
    [[nodiscard]] std::optional<MemoryPrediction> replayed_memory(const Layout& layout, std::int64_t limit);
    /// Seconds of one iteration: estimate_time().iteration_seconds. Used by the search. Reports use exact_seconds().
    [[nodiscard]] double estimate_seconds(const Layout& layout);
    /// estimate().time: the closed form with its lower bound.
    [[nodiscard]] TimePrediction estimate_time(const Layout& layout);
    /// Lower bound in seconds of an iteration (of estimate_time() and of the exact timeline) over all layouts that differ from this one
    /// only in recompute, CUDA graphs and switches: each piece of a layer takes its minimum over the choices, and nothing is recomputed.
    /// Returns a cheaper bound as soon as it exceeds `enough`. All calls must pass the same choices.
    [[nodiscard]] double least_seconds(const Layout& layout, const BoundedChoices& choices, double enough);
    /// Lower bound like least_seconds(), over layouts that also differ in stage split and chunks: the mean of all stages, from compute
    /// alone if that exceeds `enough`.
    [[nodiscard]] double least_seconds_unsplit(const Layout& layout, const BoundedChoices& choices, double enough);
    /// Lower bound of seconds over layouts with this one's switches, or any such bound that exceeds `enough`. `graphs`:
    /// BoundedChoices::graphs, the same in all calls.
    [[nodiscard]] double least_seconds(const Layout& layout, bool graphs, double enough);
    /// Lower bound of seconds over layouts that differ from this one only in selective recompute, CUDA graphs and switches.
    [[nodiscard]] double least_seconds_repeated(const Layout& layout, const BoundedChoices& choices);
    /// Lower bound of the bytes of parameters, gradients and optimizer state on the fullest stage of such layouts.
    [[nodiscard]] std::int64_t least_bytes(const Layout& layout, const BoundedChoices& choices);
    /// Lower bound of memory over all layouts that differ from this one only in overlaps and dtypes. The layout's switches must be among
    /// the choices, which are the same in all calls. `everywhere`: bounds the fullest stage at p99 of the routing skew, for the layout's
    /// own dtypes, which takes longer; otherwise only the first stage with even routing. Returns any bound that exceeds `enough`.
    [[nodiscard]] std::int64_t least_bytes_of_tail(const Layout& layout, const BoundedChoices& choices, bool everywhere,
                                                   std::int64_t enough);
    /// Lower bound of memory over all layouts that differ from this one only in recompute and CUDA graphs.
    [[nodiscard]] std::int64_t least_bytes_switched(const Layout& layout);
    /// Time of the closed form (its error against the event simulation: docs/time.md), and predict_exactly().memory.
    [[nodiscard]] Prediction estimate(const Layout& layout);
    /// Number of forward and backward passes of all ranks in one iteration.
    [[nodiscard]] static std::int64_t passes(const Layout& layout);
    /// estimate() with the time of the exact timeline; above kMostReplayedPasses passes with the closed form's.
    [[nodiscard]] Prediction predict_exactly(const Layout& layout);
    /// predict_exactly().time without the memory, with adverse_seconds: of the iteration with a slower network between nodes, a slower host
    /// (Workload::adverse), and, unless the workload states its routing, tokens that spread unevenly over experts.
    [[nodiscard]] TimePrediction exact_time(const Layout& layout);
    /// predict_exactly().time.iteration_seconds.
    [[nodiscard]] double exact_seconds(const Layout& layout);
    /// Exact timeline of a layout of at most kMostReplayedPasses passes. `details`: keeps the times of every pass. `slowdown`: see
    /// step_timeline().
    [[nodiscard]] LayoutTimeline timeline(const Layout& layout, bool details = true, const std::vector<double>& slowdown = {});
    /// Exact timeline of the layout's model chunks under another schedule. With two chunks a rank the layout must have vpp = 2, otherwise
    /// vpp = 1. The order must match the layout's pp and microbatches and have at most three passes for each forward and backward.
    [[nodiscard]] LayoutTimeline timeline(const Layout& layout, const PipelineOrder& order, bool details = true,
                                          const std::vector<double>& slowdown = {});
    /// Memory of the ranks of pipeline stage `pp_rank` in [0, pp); all are equal if tokens spread evenly over experts.
    [[nodiscard]] RankMemory stage_memory(const Layout& layout, int pp_rank);
    /// Memory ops of a stage's ranks under engine megatron, for StageTimelines (LayoutMemory::megatron_ops).
    [[nodiscard]] RankProbe megatron_ops(const Layout& layout, int pp_rank);
    /// Memory that CUDA graphs add on the ranks of a pipeline stage; with engine megatron as Megatron-LM captures them.
    [[nodiscard]] GraphTerms graphs(const Layout& layout, int pp_rank);
    /// Seconds of one microbatch's forward and backward through a chunk, independent of the layout's split, plus the transfers that its
    /// rank waits for (those that nothing hides).
    [[nodiscard]] double chunk_seconds(const Layout& layout, const StageChunk& chunk);
    /// Costs of the layers, from recordings (price/recorded_costs.hpp). The reference is valid as long as the model.
    [[nodiscard]] const LayerCosts& costs(const Layout& layout);
    /// Replays PyTorch's allocator over iterations of a stage's rank with engine megatron; nothing for engine mgplan.
    [[nodiscard]] std::optional<ReservedMemory> replay_allocator(const Layout& layout, int pp_rank);
    /// The same replay, event by event and with labels. Only for engine megatron.
    [[nodiscard]] AllocatorHistory record_allocator(const Layout& layout, int pp_rank);
    [[nodiscard]] const Calibration& calibration() const;

private:
    struct ByModel;
    struct State;
    struct Switched;
    struct Least;
    struct SharedLeast;
    struct Bounded;
    struct DeviceSeconds;
    struct Adverse;
    /// Shares the recordings of `other`, whose workload has the same model and training, but not their costs.
    CostModel(const Workload& workload, const Calibration& calibration, const CostModel& other);
    /// Lower bound of each layer's cost over all open choices.
    [[nodiscard]] const Bounded& least_layers(const Layout& layout, const BoundedChoices& choices);
    [[nodiscard]] double seconds_of_stages(const Layout& layout, bool repeats, const PieceSeconds& pieces) const;
    [[nodiscard]] double whole_model(const LayerCosts& costs) const;
    [[nodiscard]] DeviceSeconds device_seconds(const LayerCosts& costs) const;
    /// Lower bounds of the whole model's seconds: compute alone (of experts only the GEMMs); the second also counts exposed communication
    /// outside MoE layers.
    [[nodiscard]] double least_compute(const Layout& layout, const BoundedChoices& choices);
    [[nodiscard]] double least_without_exchanges(const Layout& layout, const BoundedChoices& choices);
    /// State of the workload with the layout's switches applied.
    [[nodiscard]] State& state_of(const Layout& layout);
    [[nodiscard]] State& state_of(const std::shared_ptr<const LayoutSwitches>& switches);
    Switched* add_switched(const std::shared_ptr<const LayoutSwitches>& switches);

    std::unique_ptr<State> state_;                     ///< state of the workload without switches
    std::vector<std::unique_ptr<Switched>> switched_;  ///< one for each set of switches that a layout had
    Switched* last_ = nullptr;          ///< the element of switched_ used last: consecutive layouts of a search often share it
    std::unique_ptr<Adverse> adverse_;  ///< made at the first adverse_seconds()
    std::unique_ptr<Least> least_;      ///< results of least_seconds() and least_bytes_of_tail()
};

}  // namespace mgplan::simulator
