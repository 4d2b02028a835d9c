#pragma once
// Live bytes of one rank over one training step of mgplan's own runtime, exactly: every forward and backward of the schedule
// from one trace of each chunk.

#include <cstdint>
#include <vector>

#include "model/training/rank_trainer.hpp"
#include "plan/schedule/schedule.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/memory/timeline.hpp"

namespace mgplan::simulator {

/// Every chunk forward once, then every chunk backward in reverse: what a probe runs. `divided`: each backward in two passes.
[[nodiscard]] RankSchedule once_through(int vpp, bool divided = false);

/// Memory of one stage's ops, traced once: the same runtime code on shapes, each forward and backward alone.
struct RankProbe {
    BytesByCategory held{};            ///< before a step: buffers and optimizer state
    OpProfile before;                  ///< from the step's begin to its first forward
    std::vector<OpProfile> forward;    ///< by chunk; what is sent counts as given back at the end
    std::vector<OpProfile> backward;   ///< by chunk; the same; divided backwards: the gradient of the input
    std::vector<OpProfile> weights;    ///< by chunk: the weight-gradient passes of divided backwards; else empty
    bool v_shaped = false;             ///< each chunk's messages go another way and wait for one another alone
    OpProfile after;                   ///< reductions, norm, update
    std::vector<bool> sends_forward;   ///< by chunk: all but the one with the loss
    std::vector<bool> sends_backward;  ///< all but the one with the embedding
    std::int64_t message = 0;          ///< bytes of the stream between stages
};

/// Probes a rank of the pipeline stage `pp_rank`: its first. `stands_for`: whose kernels' scratch is counted. Throws
/// ConfigError for what the layers do not compute.
[[nodiscard]] RankProbe probe_rank(const model::TrainingTask& task, int pp_rank, const model::KernelTraits& stands_for = {});

/// Plays a schedule on a probe: O(ops). Equal to what the runtime's allocator counts (tests/agreement).
/// `depth`: sends left open (model/pipeline/send_depth.hpp), whose tensors stay alive.
[[nodiscard]] RankTimeline play(const RankProbe& probe, const RankSchedule& schedule, const model::SendDepth& depth, bool keep_ops);

}  // namespace mgplan::simulator
