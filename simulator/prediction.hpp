#pragma once
// Predicted cost of a layout: the values that `plan` and `simulate` print (CLI.md "predicted").

#include <cstdint>
#include <vector>

#include "simulator/compute/module_work.hpp"
#include "simulator/memory/memory_prediction.hpp"

namespace mgplan::simulator {

/// Seconds of communication not hidden by computation, by the group that causes it: tp, cp and ep on the slowest stage, dp (with the
/// parameter gather) on the stage where it is largest, pp along the pipeline. ep includes the exchange over etp.
struct ExposedCommunication {
    double tp = 0;
    double cp = 0;
    double ep = 0;
    double dp = 0;
    double pp = 0;
    [[nodiscard]] double total() const { return tp + cp + ep + dp + pp; }
};

struct TimePrediction {
    double iteration_seconds = 0;
    /// The iteration in adverse conditions (CostModel::exact_time); at least iteration_seconds. 0: not computed.
    double adverse_seconds = 0;
    /// Lower bound of the event simulation's time for this layout, from the closed form (step_time.hpp). 0: unknown.
    double at_least_seconds = 0;
    double interval_low = 0;  ///< limits of the model's own uncertainty, see docs/accuracy.md
    double interval_high = 0;
    double compute_seconds = 0;    ///< compute on the slowest stage, including recompute and waits for kernel launches
    double recompute_seconds = 0;  ///< part of compute_seconds
    double host_seconds = 0;       ///< another part of compute_seconds: the GPU waits for kernel launches
    double bubble_seconds = 0;     ///< the slowest stage waits for others while the pipeline fills and drains
    /// Not part of iteration_seconds: how much longer than the slowest stage a rank waits for others, the mean over all ranks.
    double imbalance_seconds = 0;
    double optimizer_seconds = 0;
    ExposedCommunication exposed;
    int slowest_stage = 0;
    /// compute_seconds by module; the seconds add up to it. Not counted by CostModel::estimate() and estimate_time().
    ByModule<ModuleWork> modules;
    double tokens_per_second_per_gpu = 0;
    double model_tflops_per_gpu = 0;
    double mfu = 0;  ///< model_flops() over the dense peak of the plan's precision
    double hfu = 0;  ///< mfu with the FLOPs of recompute included
    /// The rest of the iteration: data loading, scheduler, logging (iteration_fixed_seconds, simulator/compute/calibration.hpp).
    [[nodiscard]] double fixed_seconds() const {
        const double rest = iteration_seconds - compute_seconds - exposed.total() - bubble_seconds - optimizer_seconds;
        return rest > 1e-9 * iteration_seconds ? rest : 0;
    }
    [[nodiscard]] double bubble_fraction() const { return iteration_seconds > 0 ? bubble_seconds / iteration_seconds : 0; }
    [[nodiscard]] double imbalance_fraction() const { return iteration_seconds > 0 ? imbalance_seconds / iteration_seconds : 0; }
    /// Share of all ranks' time in which they wait for other stages.
    [[nodiscard]] double idle_fraction() const { return bubble_fraction() + imbalance_fraction(); }
};

/// Time of one pipeline stage's ranks in an iteration by cause; the seconds add up to the iteration. Causes as in TimePrediction: exposed
/// pp and the reduction in exposed dp are the seconds that the iteration would save without them, equal on all stages; tp, cp, ep and a
/// gather after the optimizer are the stage's own.
struct StageUse {
    double compute_seconds = 0;    ///< in forwards and backwards, without communication
    double recompute_seconds = 0;  ///< part of compute_seconds
    double host_seconds = 0;       ///< another part of it: waits for kernel launches
    ExposedCommunication exposed;
    double bubble_seconds = 0;  ///< waits for other stages, including those after its own optimizer update
    double optimizer_seconds = 0;
    double fixed_seconds = 0;  ///< data loading, scheduler, logging
    double utilisation = 0;    ///< compute_seconds / iteration

    [[nodiscard]] double total() const { return compute_seconds + exposed.total() + bubble_seconds + optimizer_seconds + fixed_seconds; }
};

struct Prediction {
    TimePrediction time;
    MemoryPrediction memory;
};

}  // namespace mgplan::simulator
