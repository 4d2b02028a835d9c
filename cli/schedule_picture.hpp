#pragma once
// A small picture of a pipeline schedule in text: time runs across, pipeline ranks down.

#include <cstdint>
#include <string>

#include "plan/schedule/schedule.hpp"

namespace mgplan::cli {

/// Returns "F3" or, with chunks, "F3b": one entry of a list with undivided backwards.
[[nodiscard]] std::string operation_text(const PipelineOp& op, bool chunks);

/// Returns the picture with a forward of one chunk as one step and a backward as two, as in the literature (Narayanan et
/// al. 2021, arXiv 2104.04473, figure 4), without communication. At most `columns` wide: long schedules wrap into a few
/// bands and are then cut, with a note; so are many ranks. Its cost depends only on the size of the picture.
[[nodiscard]] std::string schedule_picture(const Schedule& schedule, std::size_t columns);

}  // namespace mgplan::cli
