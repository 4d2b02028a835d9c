#pragma once
// From an iteration run event by event to what is drawn of it.

#include <optional>
#include <vector>

#include "simulator/cost_model.hpp"
#include "simulator/memory/timeline.hpp"
#include "simulator/timeline/pipeline_picture.hpp"
#include "simulator/timeline/timeline_trace.hpp"

namespace mgplan::simulator {

/// At most about `most` slices and instants: of longer iterations the first and last microbatches. The timeline must have its
/// details. `memory`: by pipeline rank, with ops, exact memory of the same schedule; empty or nothing: no instants. Exposed tp, cp
/// and ep communication is drawn at the end of its pass.
[[nodiscard]] TimelineTrace timeline_trace(const LayoutTimeline& timeline, const std::vector<std::optional<StageTimeline>>& memory,
                                           std::size_t most);

/// Every pass of it. The timeline must have its details.
[[nodiscard]] PipelinePicture pipeline_picture(const LayoutTimeline& timeline);

}  // namespace mgplan::simulator
