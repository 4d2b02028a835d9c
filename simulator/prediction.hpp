#pragma once
// What a layout will cost: the values that `plan` and `simulate` print (CLI.md "predicted").

#include <cstdint>
#include <vector>

#include "simulator/memory/memory_prediction.hpp"

namespace mgplan::simulator {

/// Seconds of communication that no computation hides, by the group that causes it: tp, cp and ep on the slowest stage,
/// dp (with the parameter gather) on the stage where it is largest, pp along the pipeline. ep holds the etp exchange too.
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
    /// A lower bound on the time that the events of this layout take, from the closed form (step_time.hpp). 0: not known.
    double at_least_seconds = 0;
    double interval_low = 0;  ///< the model's own uncertainty, see docs/accuracy.md
    double interval_high = 0;
    double compute_seconds = 0;    ///< of the slowest stage, recompute and waiting for kernel launches included
    double recompute_seconds = 0;  ///< part of compute_seconds
    double host_seconds = 0;       ///< another part of compute_seconds: the GPU waits for kernels to be launched
    double bubble_seconds = 0;     ///< the slowest stage waits for the others while the pipeline fills and drains
    double optimizer_seconds = 0;
    ExposedCommunication exposed;
    int slowest_stage = 0;
    double tokens_per_second_per_gpu = 0;
    double model_tflops_per_gpu = 0;
    double mfu = 0;  ///< model_flops() over the dense peak of the plan's precision
    double hfu = 0;  ///< mfu with the FLOPs of recompute added
    /// What is no other term's: data loading, scheduler, logging (simulator/compute/calibration.hpp iteration_fixed_seconds).
    [[nodiscard]] double fixed_seconds() const {
        const double rest = iteration_seconds - compute_seconds - exposed.total() - bubble_seconds - optimizer_seconds;
        return rest > 1e-9 * iteration_seconds ? rest : 0;
    }
    [[nodiscard]] double bubble_fraction() const { return iteration_seconds > 0 ? bubble_seconds / iteration_seconds : 0; }
};

/// What the ranks of one pipeline stage do in an iteration, in seconds that add up to it. Causes are told apart as in TimePrediction:
/// exposed pp and the reduction in exposed dp are what the iteration would be shorter without, and so equal on all stages; tp, cp,
/// ep and a gather behind the optimizer are the stage's own.
struct StageUse {
    double compute_seconds = 0;    ///< inside forwards and backwards, without communication
    double recompute_seconds = 0;  ///< part of compute_seconds
    double host_seconds = 0;       ///< another part of it: waiting for kernels to be launched
    ExposedCommunication exposed;
    double bubble_seconds = 0;  ///< waiting for other stages, also behind its own optimizer update
    double optimizer_seconds = 0;
    double fixed_seconds = 0;  ///< data loading, scheduler, logging
    double utilisation = 0;    ///< compute_seconds over the whole iteration

    [[nodiscard]] double total() const { return compute_seconds + exposed.total() + bubble_seconds + optimizer_seconds + fixed_seconds; }
};

struct Prediction {
    TimePrediction time;
    MemoryPrediction memory;
};

}  // namespace mgplan::simulator
