#pragma once
// One rank's share of one microbatch, with the rates and links that determine its cost.

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/piece/shard_key.hpp"
#include "simulator/price/packed_attention.hpp"
#include "simulator/price/training_rates.hpp"

namespace mgplan::simulator {

/// Links of a layout's groups.
struct LayoutPaths {
    GroupPath tp, cp, dp_cp, edp, ep, etp, pp;
    /// Parts of dp_cp and edp inside one optimizer instance, and across instances; set if parameters or gradients are sharded.
    GroupPath dp_inner, dp_outer, edp_inner, edp_outer;
};

/// Inputs of layer costs. Layouts that agree in these fields have equal layer costs.
struct Shard : ShardKey {
    const Workload* workload = nullptr;
    const Calibration* calibration = nullptr;
    OpRates rates{};  ///< with the attention share of the busiest data-parallel rank (busiest_share)
    const LayoutPaths* paths = nullptr;
    std::int64_t tokens_outside = 0;  ///< rows outside a tp region: micro_batch · sequence / cp, divided by tp with sequence parallelism
    std::int64_t element = 2;         ///< bytes of an activation
    PackedAttention packed{};         ///< packing of the batch
    bool by_module = false;           ///< PieceCost::modules are counted
    bool of_division = false;         ///< costs are only division_seconds(), in exposed_backward
    double busiest_experts = 1;  ///< token copies of the busiest rank of an ep group, relative to the even number (RoutingLoad::busiest)

    [[nodiscard]] const ModelSpec& model() const { return workload->model; }
    /// Megatron-LM's switches; null with engine mgplan.
    [[nodiscard]] const MegatronSwitches* megatron() const { return engine == Engine::megatron ? &workload->training.megatron : nullptr; }
};

}  // namespace mgplan::simulator
