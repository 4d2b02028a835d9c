#pragma once
// Memory and time of any layout of one workload, with everything that layouts share computed once.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "plan/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/layout_memory.hpp"
#include "simulator/prediction.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "simulator/timeline/step_timeline.hpp"

namespace mgplan::simulator {

/// Most passes of all ranks together that are replayed one by one.
inline constexpr std::int64_t kMostReplayedPasses = std::int64_t{1} << 21;

/// One iteration event by event, and the program that it ran.
struct LayoutTimeline {
    std::shared_ptr<const PipelineProgram> program;
    StepTimeline step;
};

/// Predicts layouts of one workload. Not thread-safe: each thread owns one. The workload must outlive it.
/// Layouts must be valid (planner/constraints.hpp).
class CostModel {
public:
    explicit CostModel(const Workload& workload);
    CostModel(const Workload& workload, const Calibration& calibration);
    ~CostModel();
    CostModel(const CostModel&) = delete;
    CostModel& operator=(const CostModel&) = delete;

    /// Both peaks without the time (LayoutMemory::peaks).
    [[nodiscard]] LayoutPeaks peaks(const Layout& layout, std::int64_t most = std::numeric_limits<std::int64_t>::max());
    /// As the search judges: predict().memory without the time, and fragmentation assumed where predict() replays it.
    [[nodiscard]] MemoryPrediction memory(const Layout& layout);
    /// predict().memory without the time.
    [[nodiscard]] MemoryPrediction replayed_memory(const Layout& layout);
    /// Seconds of one iteration: predict().time.iteration_seconds, without the memory.
    [[nodiscard]] double iteration_seconds(const Layout& layout);
    /// predict().time: the closed form, with its lower bound.
    [[nodiscard]] TimePrediction time(const Layout& layout);
    [[nodiscard]] Prediction predict(const Layout& layout);
    /// Forwards and backwards of all ranks in one iteration.
    [[nodiscard]] static std::int64_t passes(const Layout& layout);
    /// predict() with the time of the exact timeline; of more than kMostReplayedPasses passes with that of the closed form.
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
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
