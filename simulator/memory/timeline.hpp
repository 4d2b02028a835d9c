#pragma once
// Live bytes of one rank over one step, op by op: plain values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/device/memory_use.hpp"
#include "plan/schedule/schedule.hpp"

namespace mgplan::simulator {

/// One entry of the schedule in the timeline.
struct TimelineOp {
    std::optional<PipelineOp> op;       ///< nothing: the part of the step before or after the passes
    std::int64_t index = 0;             ///< in the schedule
    std::int64_t live = 0;              ///< live bytes when it begins: the sum of at_begin
    std::int64_t peak = 0;              ///< peak bytes while it runs: the sum of at_peak
    model::BytesByCategory at_begin{};  ///< live when it begins
    model::BytesByCategory at_peak{};   ///< live at its peak
    std::string_view tensor;            ///< the tensor allocated at that moment; empty if the op adds nothing
};

/// Limit on the number of ops in a timeline. If a schedule is longer, the timeline keeps the fullest op of each run of equal length.
inline constexpr std::size_t kMostTimelineOps = 1U << 14U;

/// Part of a step in which an event happens.
enum class StepPart : std::uint8_t {
    held,    ///< all the time: buffers and optimizer state
    begin,   ///< before the first forward
    passes,  ///< forwards and backwards
    end,     ///< reductions, norm, update
};

struct RankTimeline {
    model::MemoryUse use;       ///< use over the whole step; current: bytes held when it ends
    std::int64_t peak_op = -1;  ///< index in the schedule of the op at the peak; -1: outside the passes
    StepPart peak_part = StepPart::held;
    std::string_view peak_tensor;  ///< the tensor allocated at that moment
    TimelineOp begin, end;         ///< the parts of the step before and after the passes
    std::vector<TimelineOp> ops;   ///< by index; empty unless requested
};

/// One step of a pipeline stage's first rank.
struct StageTimeline {
    RankTimeline memory;
    RankSchedule schedule;
};

}  // namespace mgplan::simulator
