#pragma once
// Live bytes of one rank over one training step of mgplan's own runtime, exactly: every forward and backward of the schedule
// from one trace of each chunk.

#include <cstdint>
#include <string>
#include <vector>

#include "model/training/rank_trainer.hpp"
#include "plan/schedule.hpp"
#include "simulator/memory/op_profile.hpp"

namespace mgplan::simulator {

/// Every chunk forward once, then every chunk backward in reverse: what a probe runs.
[[nodiscard]] RankSchedule once_through(int vpp);
/// The first rank of a pipeline stage in any rank order.
[[nodiscard]] int first_rank_of(const ParallelSizes& sizes, int pp_rank);

/// Memory of one stage's ops, traced once: the same runtime code on shapes, each forward and backward alone.
struct RankProbe {
    BytesByCategory held{};            ///< before a step: buffers and optimizer state
    OpProfile before;                  ///< from the step's begin to its first forward
    std::vector<OpProfile> forward;    ///< by chunk; what is sent counts as given back at the end
    std::vector<OpProfile> backward;   ///< by chunk; the same
    OpProfile after;                   ///< reductions, norm, update
    std::vector<bool> sends_forward;   ///< by chunk: all but the one with the loss
    std::vector<bool> sends_backward;  ///< all but the one with the embedding
    std::int64_t message = 0;          ///< bytes of the stream between stages
};

/// Probes a rank of the pipeline stage `pp_rank`: its first. Throws ConfigError for what the layers do not compute.
[[nodiscard]] RankProbe probe_rank(const model::TrainingTask& task, int pp_rank);

/// One entry of the schedule in the timeline.
struct TimelineOp {
    std::int16_t op = 0;  ///< as in RankSchedule::order
    std::int32_t microbatch = 0;
    std::int64_t live = 0;  ///< bytes when it begins
    std::int64_t peak = 0;  ///< most bytes while it runs
};

struct RankTimeline {
    model::MemoryUse use;          ///< of the whole step; current: what is held when it ends
    std::int64_t peak_op = -1;     ///< index in the schedule of the op at the peak; -1: outside the passes
    std::string_view peak_tensor;  ///< what was allocated at that moment
    std::vector<TimelineOp> ops;   ///< empty unless asked for
    [[nodiscard]] std::string peak_reason(const RankSchedule& schedule) const;
};

/// Plays a schedule on a probe: O(ops). Equal to what the runtime's allocator counts (tests/agreement).
/// `depth`: sends left open (model/pipeline/send_depth.hpp), whose tensors stay alive.
[[nodiscard]] RankTimeline play(const RankProbe& probe, const RankSchedule& schedule, const model::SendDepth& depth, bool keep_ops);

}  // namespace mgplan::simulator
