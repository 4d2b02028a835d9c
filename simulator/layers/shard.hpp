#pragma once
// One rank's share of one microbatch: the sizes every layer cost starts from.

#include <cstdint>

#include "plan/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Links of a layout's groups.
struct LayoutPaths {
    GroupPath tp, cp, dp_cp, edp, ep, etp, pp;
};

/// What layer costs depend on. Layouts that agree in these fields have equal layer costs.
struct Shard {
    const Workload* workload = nullptr;
    const Calibration* calibration = nullptr;
    const KernelTimes* kernels = nullptr;
    const LayoutPaths* paths = nullptr;
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1;
    std::int64_t micro_batch = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    bool selective = false;  ///< selective recompute of `modules`
    EnumSet<RecomputeModule> modules;
    Engine engine = Engine::mgplan;

    std::int64_t tokens = 0;          ///< micro_batch · sequence / cp: rows of the products inside a tp region
    std::int64_t tokens_outside = 0;  ///< rows outside it: tokens / tp with sequence parallelism
    std::int64_t element = 2;         ///< bytes of an activation

    [[nodiscard]] const ModelSpec& model() const { return workload->model; }
    [[nodiscard]] bool recomputes(RecomputeModule module) const { return selective && modules.contains(module); }
};

/// Cost of one piece of the model for one microbatch on one rank.
struct PieceCost {
    double forward = 0;                      ///< compute seconds
    double backward = 0;                     ///< compute seconds without recompute
    double recompute = 0;                    ///< forward seconds repeated by selective recompute, communication included
    double tp_forward = 0, tp_backward = 0;  ///< exposed communication seconds
    double cp_forward = 0, cp_backward = 0;
    double ep_forward = 0, ep_backward = 0;
    int kernels_forward = 0, kernels_backward = 0;
    double forward_flops = 0;    ///< model FLOPs of one forward, attention counted causally, for this rank
    std::int64_t saved = 0;      ///< bytes kept from forward to backward
    std::int64_t transient = 0;  ///< further bytes alive during its backward
    std::int64_t workspace = 0;  ///< library scratch during its backward

    PieceCost& operator+=(const PieceCost& other);
    [[nodiscard]] double communication_forward() const { return tp_forward + cp_forward + ep_forward; }
    [[nodiscard]] double communication_backward() const { return tp_backward + cp_backward + ep_backward; }
};

/// Seconds of the tp collective in front of (all-gather) and behind (reduce-scatter or all-reduce) a tp region of
/// `width` elements per token.
[[nodiscard]] double tp_gather_seconds(const Shard& shard, std::int64_t width);
[[nodiscard]] double tp_reduce_seconds(const Shard& shard, std::int64_t width);

/// What a collective costs beside a kernel that hides it: the rest that sticks out, and at least what it takes from the kernel.
[[nodiscard]] double beside(const Shard& shard, double communication, double kernel);

/// What remains of a tp collective next to a product that may hide it.
[[nodiscard]] double tp_exposed(const Shard& shard, double communication, double product);

}  // namespace mgplan::simulator
