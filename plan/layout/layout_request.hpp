#pragma once
// One layout as a user requests it, before it is checked against model, batch and world.

#include <cstdint>
#include <memory>
#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/layout/stage_split.hpp"

namespace mgplan {

/// Unset fields take Megatron-LM's defaults: etp = tp, group size = pp, an automatic stage split.
struct LayoutRequest {
    std::int64_t tp = 1;
    std::int64_t cp = 1;
    std::int64_t ep = 1;
    std::optional<std::int64_t> etp;
    /// Parts of experts' weights in a Megatron-LM command for a model without experts: Megatron-LM divides the world by these and by etp
    /// all the same; 0: etp divides nothing there.
    std::int64_t idle_expert_shards = 0;
    std::int64_t pp = 1;
    std::int64_t vpp = 1;
    std::optional<std::int64_t> layers_per_virtual_stage;  ///< instead of vpp: --num-layers-per-virtual-pipeline-stage
    std::optional<std::int64_t> group_size;
    std::optional<SplitSchedule> schedule;  ///< in place of what Megatron-LM runs; those in a V have vpp = 2
    AxisOrder order;
    std::int64_t micro_batch = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> recompute_modules{RecomputeModule::core_attn};
    RecomputeMethod recompute_method = RecomputeMethod::uniform;
    std::int64_t recompute_num_layers = 1;
    std::int64_t mhc_recompute_layers = 0;  ///< of the module mhc: layers of a block, 0: all of a chunk (--mhc-recompute-layer-num)
    EnumSet<CudaGraphScope> cuda_graphs;
    Engine engine = Engine::mgplan;
    std::shared_ptr<const LayoutSwitches> switches;  ///< Layout::switches
    /// The split of layers over stages; layers, pp, vpp and mtp_layers in here are filled from the model when the layout is made. Nothing:
    /// an even split where it divides, else the planner's automatic one.
    std::optional<StageSplitRequest> split;
};

/// The request that makes this layout again (planner/constraints.hpp, make_layout).
[[nodiscard]] LayoutRequest request_of(const Layout& layout);

}  // namespace mgplan
