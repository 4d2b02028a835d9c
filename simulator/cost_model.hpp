#pragma once
// Memory and time of any layout of one workload, with everything that layouts share computed once.

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

/// Most passes of all ranks together that are replayed one by one.
inline constexpr std::int64_t kMostReplayedPasses = std::int64_t{1} << 21;

/// One iteration event by event, and the program that it ran.
struct LayoutTimeline {
    std::shared_ptr<const PipelineProgram> program;
    StepTimeline step;
};

struct PieceSeconds;

/// What layouts are free to choose that a bound knows alike in all else.
struct BoundedChoices {
    std::vector<std::shared_ptr<const LayoutSwitches>> switches{nullptr};  ///< Layout::switches
    std::shared_ptr<const LayoutSwitches> narrowest;                       ///< of these, one with the narrowest gradients and moments
    bool graphs = false;                                                   ///< CUDA graphs of some kind, or none
};

/// Predicts layouts of one workload, or of what it becomes by a layout's switches. Not thread-safe: each thread owns one. The workload must
/// outlive it. Layouts must be valid (planner/constraints.hpp).
class CostModel {
public:
    explicit CostModel(const Workload& workload);
    CostModel(const Workload& workload, const Calibration& calibration);
    /// For another thread, with what `other`, of an equal workload, has recorded and priced, and will.
    CostModel(const Workload& workload, const CostModel& other);
    ~CostModel();
    CostModel(const CostModel&) = delete;
    CostModel& operator=(const CostModel&) = delete;

    [[nodiscard]] const Workload& workload() const;
    /// Both peaks without the time (LayoutMemory::peaks).
    [[nodiscard]] LayoutPeaks peaks(const Layout& layout, std::int64_t most = std::numeric_limits<std::int64_t>::max());
    /// As the search judges: predict_exactly().memory, and fragmentation assumed where that is replayed.
    [[nodiscard]] MemoryPrediction memory(const Layout& layout);
    /// predict_exactly().memory without the time.
    [[nodiscard]] MemoryPrediction replayed_memory(const Layout& layout);
    /// The same, or nothing where a stage is found to take more than `limit` bytes: most that do are found out by the first of some
    /// replays.
    [[nodiscard]] std::optional<MemoryPrediction> replayed_memory(const Layout& layout, std::int64_t limit);
    /// Seconds of one iteration: estimate_time().iteration_seconds. For a search; what is told is exact_seconds().
    [[nodiscard]] double estimate_seconds(const Layout& layout);
    /// estimate().time: the closed form, with its lower bound.
    [[nodiscard]] TimePrediction estimate_time(const Layout& layout);
    /// Seconds of an iteration, by estimate_time() and by the exact timeline, that no layout beats which differs from this one in
    /// recompute, CUDA graphs and switches alone: each piece of a layer takes the least of all choices and repeats nothing. Where the
    /// products of experts and what is no mixture take more than `enough` alone, that is the answer. Always asked with the same choices.
    [[nodiscard]] double least_seconds(const Layout& layout, const BoundedChoices& choices, double enough);
    /// The same for layouts that differ in their stage split and chunks too: the mean of all stages, in compute alone where that exceeds
    /// `enough`.
    [[nodiscard]] double least_seconds_unsplit(const Layout& layout, const BoundedChoices& choices, double enough);
    /// The same among layouts that have the layout's switches, or some seconds that exceed `enough`. `graphs`: BoundedChoices::graphs,
    /// always the same.
    [[nodiscard]] double least_seconds(const Layout& layout, bool graphs, double enough);
    /// Such seconds of layouts that differ from this one in selective recompute, CUDA graphs and switches alone.
    [[nodiscard]] double least_seconds_repeated(const Layout& layout, const BoundedChoices& choices);
    /// Bytes of parameters, gradients and optimizer state on the fullest stage of such a layout, or less.
    [[nodiscard]] std::int64_t least_bytes(const Layout& layout, const BoundedChoices& choices);
    /// Bytes that no layout needs less of which differs from this one in overlaps and types alone. The layout's switches are one of the
    /// choices, and they are always the same. `everywhere`: of the fullest stage at p99 of the routing skew, not of the first alone with
    /// even routing, and for the layout's own types, for more work; or some bytes that exceed `enough`.
    [[nodiscard]] std::int64_t least_bytes_of_tail(const Layout& layout, const BoundedChoices& choices, bool everywhere,
                                                   std::int64_t enough);
    /// Bytes that no layout needs less of which differs from this one in recompute and CUDA graphs alone.
    [[nodiscard]] std::int64_t least_bytes_switched(const Layout& layout);
    /// The time of the closed form (docs/time.md says how near it comes to the events), and predict_exactly().memory.
    [[nodiscard]] Prediction estimate(const Layout& layout);
    /// Forwards and backwards of all ranks in one iteration.
    [[nodiscard]] static std::int64_t passes(const Layout& layout);
    /// estimate() with the time of the exact timeline; of more than kMostReplayedPasses passes with that of the closed form.
    [[nodiscard]] Prediction predict_exactly(const Layout& layout);
    /// predict_exactly().time, without the memory.
    [[nodiscard]] TimePrediction exact_time(const Layout& layout);
    /// Seconds of one iteration as predict_exactly() has them.
    [[nodiscard]] double exact_seconds(const Layout& layout);
    /// The exact timeline of a layout of at most kMostReplayedPasses passes. `details`: of every pass.
    /// `slowdown`: of step_timeline().
    [[nodiscard]] LayoutTimeline timeline(const Layout& layout, bool details = true, const std::vector<double>& slowdown = {});
    /// The same model chunks under another schedule: of two chunks a rank the layout must have vpp = 2, else vpp = 1. The
    /// order must be for the layout's pp and microbatches and have at most three passes for each of its backwards and forwards.
    [[nodiscard]] LayoutTimeline timeline(const Layout& layout, const PipelineOrder& order, bool details = true,
                                          const std::vector<double>& slowdown = {});
    /// Memory of every rank of pipeline stage `pp_rank` in [0, pp) (they are equal where tokens spread evenly over experts).
    [[nodiscard]] RankMemory stage_memory(const Layout& layout, int pp_rank);
    /// The ops of a stage's ranks as engine megatron has them, for StageTimelines (LayoutMemory::megatron_ops).
    [[nodiscard]] RankProbe megatron_ops(const Layout& layout, int pp_rank);
    /// What CUDA graphs add to the ranks of a pipeline stage: with engine megatron as Megatron-LM captures them.
    [[nodiscard]] GraphTerms graphs(const Layout& layout, int pp_rank);
    /// Forward and backward of one microbatch of a chunk, whatever split the layout has, and the transfers that its rank waits
    /// for (those that nothing hides).
    [[nodiscard]] double chunk_seconds(const Layout& layout, const StageChunk& chunk);
    /// Read from records of the layers (price/recorded_costs.hpp). Valid until the model is gone.
    [[nodiscard]] const LayerCosts& costs(const Layout& layout);
    /// PyTorch's allocator played over iterations of engine megatron on a stage's rank; nothing for engine mgplan.
    [[nodiscard]] std::optional<ReservedMemory> replay_allocator(const Layout& layout, int pp_rank);
    [[nodiscard]] const Calibration& calibration() const;

private:
    struct State;
    struct Switched;
    struct Least;
    struct SharedLeast;
    struct Bounded;
    /// What layers cost at least for any of the choices.
    [[nodiscard]] const Bounded& least_layers(const Layout& layout, const BoundedChoices& choices);
    [[nodiscard]] double seconds_of_stages(const Layout& layout, bool repeats, const PieceSeconds& pieces) const;
    [[nodiscard]] double whole_model(const LayerCosts& costs) const;
    /// No more than these seconds: compute alone, of experts their products; and with what is exposed of what is no mixture.
    [[nodiscard]] double least_compute(const Layout& layout, const BoundedChoices& choices);
    [[nodiscard]] double least_without_exchanges(const Layout& layout, const BoundedChoices& choices);
    /// What is kept of the workload with the layout's switches.
    [[nodiscard]] State& state_of(const Layout& layout);
    [[nodiscard]] State& state_of(const std::shared_ptr<const LayoutSwitches>& switches);
    Switched* add_switched(const std::shared_ptr<const LayoutSwitches>& switches);

    std::unique_ptr<State> state_;                     ///< of the workload as it is
    std::vector<std::unique_ptr<Switched>> switched_;  ///< by switches that layouts had
    Switched* last_ = nullptr;                         ///< of switched_: neighbours in a search often share it
    std::unique_ptr<Least> least_;                     ///< of least_seconds()
};

}  // namespace mgplan::simulator
