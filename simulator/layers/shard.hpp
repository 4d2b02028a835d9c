#pragma once
// One rank's share of one microbatch: the sizes every layer cost starts from.

#include <algorithm>
#include <cstdint>

#include "plan/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/network/group_path.hpp"
#include "simulator/piece/shard_key.hpp"

namespace mgplan::simulator {

/// Links of a layout's groups.
struct LayoutPaths {
    GroupPath tp, cp, dp_cp, edp, ep, etp, pp;
    /// Of dp_cp and edp the part inside one optimizer instance, and the part across instances; set where parameters or gradients are
    /// sharded.
    GroupPath dp_inner, dp_outer, edp_inner, edp_outer;
};

/// What layer costs depend on. Layouts that agree in these fields have equal layer costs.
struct Shard : ShardKey {
    const Workload* workload = nullptr;
    const Calibration* calibration = nullptr;
    const KernelTimes* kernels = nullptr;
    const KernelTimes* storage_kernels = nullptr;  ///< of products that stay in the storage type under fp8: head, router, unfused core
    const LayoutPaths* paths = nullptr;
    std::int64_t tokens = 0;          ///< micro_batch · sequence / cp: rows of the products inside a tp region
    std::int64_t tokens_outside = 0;  ///< rows outside it: tokens / tp with sequence parallelism
    std::int64_t element = 2;         ///< bytes of an activation
    double busiest_experts = 1;       ///< token copies of the busiest rank of an ep group over the even number (RoutingLoad::busiest)

    [[nodiscard]] const ModelSpec& model() const { return workload->model; }
    /// Megatron-LM's switches where it is the engine, else nothing.
    [[nodiscard]] const MegatronSwitches* megatron() const { return engine == Engine::megatron ? &workload->training.megatron : nullptr; }
    [[nodiscard]] bool recomputes(RecomputeModule module) const { return modules.contains(module); }
};

/// Seconds by the group that communicates.
struct GroupSeconds {
    double tp = 0, cp = 0, ep = 0;
    [[nodiscard]] double total() const { return tp + cp + ep; }
    GroupSeconds& operator+=(const GroupSeconds& other) {
        tp += other.tp;
        cp += other.cp;
        ep += other.ep;
        return *this;
    }
};

/// Time of one piece of the model for one microbatch on one rank. Its bytes are traced (simulator/memory).
struct PieceCost {
    double forward = 0;                                                 ///< compute seconds
    double backward = 0;                                                ///< compute seconds without recompute
    double weight_gradient = 0;                                         ///< part of backward: products that nothing but the update needs
    double recompute = 0;                                               ///< compute seconds of the forward that selective recompute repeats
    GroupSeconds exposed_forward, exposed_backward, exposed_recompute;  ///< communication that no computation hides
    int kernels_forward = 0, kernels_backward = 0;
    double forward_flops = 0;    ///< this rank's share of model_flops() in one forward
    double recompute_flops = 0;  ///< part of forward_flops that selective recompute repeats

    /// Another piece behind this one on the same rank.
    PieceCost& operator+=(const PieceCost& other);
};

/// Seconds of the tp collective in front of (all-gather) and behind (reduce-scatter or all-reduce) a tp region of
/// `width` elements per token.
[[nodiscard]] double tp_gather_seconds(const Shard& shard, std::int64_t width);
[[nodiscard]] double tp_reduce_seconds(const Shard& shard, std::int64_t width);

/// What a collective costs beside a kernel that hides it: the rest that sticks out, and at least what it takes from the kernel.
[[nodiscard]] double beside(const Shard& shard, double communication, double kernel);

/// What remains of an input gradient's tp reduction of `reduction` seconds next to the weight gradient of `product` seconds.
[[nodiscard]] double tp_reduce_exposed(const Shard& shard, double reduction, double product);

/// What remains of a tp collective next to a product that may hide it.
[[nodiscard]] double tp_exposed(const Shard& shard, double communication, double product);

}  // namespace mgplan::simulator
