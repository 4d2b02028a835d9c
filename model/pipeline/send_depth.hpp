#pragma once
// Number of sends that a pipeline rank must be able to leave open so that no schedule deadlocks.

#include <cstdint>

#include "plan/layout/layout_schedule.hpp"

namespace mgplan::model {

struct SendDepth {
    std::int64_t forward = 1;
    std::int64_t backward = 1;
};

/// Messages on each channel that a rank may have sent before their receives are posted, with a transport that buffers
/// no message (each send ends when its receive is posted). One is enough except from the last stage around
/// to the first with interleaving (and back, for gradients): the first stage runs a whole group of microbatches of one
/// chunk, `group_size`, before it takes up the next chunk, whose first input is finished after pp of them. Megatron-LM
/// holds these messages on the receiving side (core/pipeline_parallel/schedules.py, input_tensors). The bound is checked
/// by tests/model/pipeline/deadlock_test.cpp over all golden schedules.
[[nodiscard]] SendDepth send_depth(int pp, int vpp, std::int64_t group_size, int pp_rank);

/// The fewest open messages, the same on every rank and channel, with which a schedule with divided backwards finishes: found
/// by walking its lists, whose waiting depends on no durations. Chunks in a V send on channels of their own.
[[nodiscard]] std::int64_t least_send_depth(const PipelineOrder& order);

/// The depth of a rank of a layout's schedule.
[[nodiscard]] SendDepth send_depth(const LayoutSchedule& schedule, int pp_rank);

}  // namespace mgplan::model
