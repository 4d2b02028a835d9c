#pragma once
// Cached results that layouts of one model share whatever their switches: layer counts of a split's chunks, parameters of a shard's pieces,
// links of its groups, pass order, and allocator replays.

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/memory/replay_memo.hpp"
#include "simulator/memory/split_stages.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece_parameters.hpp"
#include "simulator/price/layout_paths.hpp"
#include "simulator/timeline/pipeline_program.hpp"

namespace mgplan::simulator {

/// Not thread-safe. Workload, calibration and schedules must outlive it. References are valid as long as it, except for paths().
class ModelMemos {
public:
    ModelMemos(const Workload& workload, const Calibration& calibration, std::shared_ptr<SharedSchedules> schedules);

    [[nodiscard]] const LayerKinds& kinds() const { return kinds_; }
    [[nodiscard]] const std::shared_ptr<SharedSchedules>& schedules() const { return schedules_; }
    [[nodiscard]] SplitStages& stages() { return stages_; }
    [[nodiscard]] ReplayMemo& replays() { return replays_; }
    [[nodiscard]] const SplitCensus& census(const Layout& layout) { return stages_.census(layout); }
    [[nodiscard]] const PieceParameters& pieces(const ParallelSizes& sizes);
    /// Valid until called with other sizes.
    [[nodiscard]] const LayoutPaths& paths(const ParallelSizes& sizes);
    /// Program of the layout's own schedule, shared by layouts with equal schedule, pp, vpp, group size and microbatches.
    [[nodiscard]] std::shared_ptr<const PipelineProgram> program(const Layout& layout);

private:
    const Workload& workload_;
    const Calibration& calibration_;
    LayerKinds kinds_;
    std::shared_ptr<SharedSchedules> schedules_;  ///< shared by all threads
    SplitStages stages_;
    ReplayMemo replays_;
    std::unordered_map<MemoKey<3>, PieceParameters, MemoKeyHash> pieces_;
    ParallelSizes sizes_of_paths_;  ///< argument of the last call of paths()
    LayoutPaths paths_;
    std::unordered_map<MemoKey<5>, std::shared_ptr<const PipelineProgram>, MemoKeyHash> programs_;
    std::size_t kept_passes_ = 0;  ///< total number of passes in programs_
};

}  // namespace mgplan::simulator
