#pragma once
// Closed form of the iteration time, used by the search: a pipeline of stages, the slowest of which runs without a pause, plus the exposed
// parts of gradient reduction and parameter gather.

#include "simulator/step_parts.hpp"

namespace mgplan::simulator {

/// Sets the fields that follow from iteration_seconds and compute_seconds: interval, tokens, FLOP/s, mfu, hfu and, if `slowest` counts
/// them, modules. `recompute_flops`: recomputed for one microbatch on all stages. `slowest`: time of one microbatch on the slowest stage.
void finish_rates(const StepInputs& inputs, const StageTime& slowest, double recompute_flops, TimePrediction& time);

[[nodiscard]] TimePrediction step_time(const StepInputs& inputs);

}  // namespace mgplan::simulator
