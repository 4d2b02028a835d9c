#pragma once
// Where memory timelines of a layout's stages come from, for whoever shows them. Engine mgplan: its own layers on shapes, so that
// they are what the runtime will hold, byte for byte. Engine megatron: chunks composed from the traces of their pieces under
// Megatron-LM's policies, the same that the search's estimate is made of.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/device/kernel_traits.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/memory/rank_timeline.hpp"

namespace mgplan::simulator {

/// `estimate` with what the timeline knows exactly in place of what was estimated: tensors by category at the peak, each
/// category's maximum, what the tensor allocator reports. Context and fragmentation stay as they are, and the quantiles of routing
/// as far above the peak as they were.
[[nodiscard]] RankMemory exact_memory(const RankMemory& estimate, const RankTimeline& timeline);

/// The kernels whose scratch a plan for this cluster's GPUs takes.
[[nodiscard]] model::KernelTraits kernels_of(const ClusterSpec& cluster);

/// Makes timelines of one layout's stages. Mixtures: experts are chosen in turn. Not thread-safe.
class StageTimelines {
public:
    /// `stands_for`: whose kernels' scratch is counted. The layout must be valid (planner/constraints.hpp). `megatron_ops`: of a
    /// stage, for layouts of engine megatron, which have no timeline without (CostModel::megatron_ops).
    StageTimelines(const Workload& workload, const Layout& layout, const model::KernelTraits& stands_for,
                   std::function<RankProbe(int pp_rank)> megatron_ops);
    StageTimelines(const StageTimelines&) = delete;
    StageTimelines& operator=(const StageTimelines&) = delete;

    /// Why there are no timelines, in one line; empty where there are.
    [[nodiscard]] const std::string& why_none() const { return why_none_; }
    /// Whether they hold what mgplan's own runtime will: of engine mgplan.
    [[nodiscard]] bool exact() const { return task_.layout.engine == Engine::mgplan; }
    /// The timeline of stage `pp_rank` in [0, pp); nothing where why_none() says so.
    [[nodiscard]] std::optional<StageTimeline> of(int pp_rank, bool keep_ops);

private:
    model::TrainingTask task_;
    model::KernelTraits stands_for_;
    std::function<RankProbe(int)> megatron_ops_;
    std::string why_none_;
    std::optional<LayoutSchedule> schedule_;
};

}  // namespace mgplan::simulator
