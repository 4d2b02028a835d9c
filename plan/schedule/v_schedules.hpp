#pragma once
// Schedules of controllable memory: Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362. Two chunks in a
// V; what one microbatch does on every rank is a building block that repeats every six slots, and how long it holds its
// activations decides the peak.

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan {

/// V-Half: half of 1F1B's activations, (pp + 2)/2 microbatches; bubble about half of 1F1B's.
[[nodiscard]] PipelineOrder v_half(int pp, std::int64_t microbatches);

/// V-Min: a third of them, (pp + 4)/3 microbatches; bubble about two thirds of 1F1B's.
[[nodiscard]] PipelineOrder v_min(int pp, std::int64_t microbatches);

}  // namespace mgplan
