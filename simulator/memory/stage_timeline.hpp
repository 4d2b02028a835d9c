#pragma once
// Creates memory timelines of a layout's stages for reports. Engine mgplan: its own layers run on shapes, so that the result equals the
// runtime's memory byte for byte. Engine megatron: chunks composed from the traces of their pieces under Megatron-LM's policies, as in the
// search's estimate.

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

/// `estimate` with estimated values replaced by exact ones of the timeline: tensors by category at the peak, each category's maximum, the
/// tensor allocator's peak. Context and fragmentation stay unchanged, and the quantiles of routing keep their distance from the peak.
[[nodiscard]] RankMemory exact_memory(const RankMemory& estimate, const RankTimeline& timeline);

/// GPU kernels of this cluster, for the count of their scratch.
[[nodiscard]] model::KernelTraits kernels_of(const ClusterSpec& cluster);

/// Creates timelines of one layout's stages. MoE layers: experts are chosen in turn. Not thread-safe.
class StageTimelines {
public:
    /// `stands_for`: GPU kernels whose scratch is counted. The layout must be valid (planner/constraints.hpp). `megatron_ops`: returns a
    /// stage's ops (CostModel::megatron_ops), required for engine megatron.
    StageTimelines(const Workload& workload, const Layout& layout, const model::KernelTraits& stands_for,
                   std::function<RankProbe(int pp_rank)> megatron_ops);
    StageTimelines(const StageTimelines&) = delete;
    StageTimelines& operator=(const StageTimelines&) = delete;

    /// The reason in one line if there are no timelines; otherwise empty.
    [[nodiscard]] const std::string& why_none() const { return why_none_; }
    /// True for engine mgplan: the timelines equal the memory of mgplan's own runtime.
    [[nodiscard]] bool exact() const { return task_.layout.engine == Engine::mgplan; }
    /// The timeline of stage `pp_rank` in [0, pp); nothing if why_none() is not empty.
    [[nodiscard]] std::optional<StageTimeline> of(int pp_rank, bool keep_ops);

private:
    model::TrainingTask task_;
    model::KernelTraits stands_for_;
    std::function<RankProbe(int)> megatron_ops_;
    std::string why_none_;
    std::optional<LayoutSchedule> schedule_;
};

}  // namespace mgplan::simulator
