#include "simulator/model_memos.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "plan/layout/layout_schedule.hpp"

namespace mgplan::simulator {
namespace {

/// Limit on the total number of passes of all cached programs.
constexpr std::size_t kMostKeptPasses = std::size_t{1} << 21;

}  // namespace

ModelMemos::ModelMemos(const Workload& workload, const Calibration& calibration, std::shared_ptr<SharedSchedules> schedules)
    : workload_(workload),
      calibration_(calibration),
      kinds_(layer_kinds(workload.model, workload.training.megatron)),
      schedules_(std::move(schedules)),
      stages_(kinds_, *schedules_),
      paths_(paths_of(sizes_of_paths_, workload.cluster, calibration)) {}

const PieceParameters& ModelMemos::pieces(const ParallelSizes& sizes) {
    auto [entry, fresh] = pieces_.try_emplace({{sizes.tp, sizes.ep, sizes.etp}});
    if (fresh) entry->second = piece_parameters(workload_.model, kinds_, sizes);
    return entry->second;
}

const LayoutPaths& ModelMemos::paths(const ParallelSizes& sizes) {
    // One entry suffices: a search varies all other settings before it moves to other sizes.
    if (sizes == sizes_of_paths_) return paths_;
    paths_ = paths_of(sizes, workload_.cluster, calibration_);
    if (workload_.training.megatron.fully_sharded.active())
        add_instances(paths_, sizes, std::max(1, workload_.training.distributed_optimizer_instances), workload_.cluster, calibration_);
    else if (workload_.training.megatron.weight_shards.active())
        add_weight_shards(paths_, sizes, workload_.training.megatron.weight_shards, workload_.cluster, calibration_);
    sizes_of_paths_ = sizes;
    return paths_;
}

std::shared_ptr<const PipelineProgram> ModelMemos::program(const Layout& layout) {
    const std::int64_t divided = layout.schedule ? 1 + static_cast<std::int64_t>(*layout.schedule) : 0;
    const MemoKey<5> key{
        {layout.sizes.pp, layout.vpp, layout.num_microbatches, layout.vpp > 1 && !layout.schedule ? layout.group_size : 0, divided}};
    if (const auto found = programs_.find(key); found != programs_.end()) return found->second;
    auto program = std::make_shared<const PipelineProgram>(make_program(LayoutSchedule(layout).order()));
    if (kept_passes_ + program->ops.size() > kMostKeptPasses) {
        programs_.clear();
        kept_passes_ = 0;
    }
    kept_passes_ += program->ops.size();
    return programs_.emplace(key, std::move(program)).first->second;
}

}  // namespace mgplan::simulator
