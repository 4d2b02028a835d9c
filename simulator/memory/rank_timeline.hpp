#pragma once
// Exact live bytes of one rank over one training step of mgplan's own runtime: every forward and backward of the schedule, from one trace
// of each chunk.

#include <cstdint>
#include <vector>

#include "model/training/rank_trainer.hpp"
#include "plan/schedule/schedule.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/memory/timeline.hpp"

namespace mgplan::simulator {

/// Every chunk forward once, then every chunk backward in reverse: the schedule of a probe. `divided`: each backward in two passes.
[[nodiscard]] RankSchedule once_through(int vpp, bool divided = false);

/// Memory of one stage's ops, traced once: the runtime's own code on shapes, each forward and backward by itself.
struct RankProbe {
    BytesByCategory held{};            ///< before a step: buffers and optimizer state
    OpProfile before;                  ///< from the step's begin to its first forward
    std::vector<OpProfile> forward;    ///< by chunk; sent tensors count as freed at the end
    std::vector<OpProfile> backward;   ///< by chunk, likewise; with split backwards only the input gradient
    std::vector<OpProfile> weights;    ///< by chunk: the weight-gradient passes of split backwards; else empty
    bool v_shaped = false;             ///< each chunk's messages have a channel of their own, in opposite directions
    OpProfile after;                   ///< reductions, norm, update
    std::vector<bool> sends_forward;   ///< by chunk: true except for the one with the loss
    std::vector<bool> sends_backward;  ///< by chunk: true except for the one with the embedding
    std::int64_t message = 0;          ///< bytes of the stream between stages
};

/// Probes the first rank of pipeline stage `pp_rank`. `stands_for`: GPU kernels whose scratch is counted. Throws ConfigError for features
/// that the layers do not implement.
[[nodiscard]] RankProbe probe_rank(const model::TrainingTask& task, int pp_rank, const model::KernelTraits& stands_for = {});

/// Plays a schedule on a probe: O(ops). Equal to the count of the runtime's allocator (tests/agreement). `depth`: open sends
/// (model/pipeline/send_depth.hpp), whose tensors stay alive.
[[nodiscard]] RankTimeline play(const RankProbe& probe, const RankSchedule& schedule, const model::SendDepth& depth, bool keep_ops);

}  // namespace mgplan::simulator
