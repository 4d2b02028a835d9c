#pragma once
// Time of one iteration by the closed form that the search asks: a pipeline of stages, of which the slowest runs without a pause,
// with what gradient reduction and parameter gather leave exposed.

#include "simulator/step_parts.hpp"

namespace mgplan::simulator {

/// What follows from iteration_seconds: the interval, tokens, FLOP/s, mfu and hfu. `recompute_flops`: repeated by one
/// microbatch on all stages. `slowest`: one microbatch on the slowest stage.
void finish_rates(const StepInputs& inputs, const StageTime& slowest, double recompute_flops, TimePrediction& time);

[[nodiscard]] TimePrediction step_time(const StepInputs& inputs);

}  // namespace mgplan::simulator
