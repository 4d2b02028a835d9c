#pragma once
// Converts a simulated iteration into data to draw.

#include <optional>
#include <vector>

#include "simulator/cost_model.hpp"
#include "simulator/memory/timeline.hpp"
#include "simulator/timeline/pipeline_picture.hpp"
#include "simulator/timeline/timeline_trace.hpp"

namespace mgplan::simulator {

/// Returns at most about `most` slices and counters; of longer iterations only the first and last microbatches. The timeline must have its
/// details. `memory`: by pipeline rank, exact memory with ops of the same schedule; no memory counters where it is missing. Exposed tp, cp
/// and ep communication is drawn at the end of its pass.
[[nodiscard]] TimelineTrace timeline_trace(const LayoutTimeline& timeline, const std::vector<std::optional<StageTimeline>>& memory,
                                           std::size_t most);

/// Returns all passes, to be drawn. The timeline must have its details.
[[nodiscard]] PipelinePicture pipeline_picture(const LayoutTimeline& timeline);

/// Joins each forward and backward that run concurrently (--overlap-moe-expert-parallel-comm): both get the begin of the first and the end
/// of the second. The timeline has them one after the other, in the time of both. Megatron-LM pairs the passes between warm-up and
/// cool-down (core/pipeline_parallel/schedules.py, combined_1f1b.py), without a pipeline all but the first forward and the last backward. A
/// pass that waits for its input stays alone.
void join_pairs(PipelinePicture& picture, const Layout& layout);

}  // namespace mgplan::simulator
