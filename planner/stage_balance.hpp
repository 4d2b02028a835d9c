#pragma once
// Exact dynamic programme that divides a model into pipeline stages so that the slowest stage is as fast as possible. It takes seconds and
// memory as functions.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/layout/stage_split.hpp"

namespace mgplan::planner {

/// Maximum number of decoder layers: work grows with their square.
inline constexpr std::int64_t kMostBalancedLayers = 1024;

struct StageBalanceProblem {
    std::int64_t layers = 0;
    std::int64_t mtp_layers = 0;
    int pp = 2;
    int vpp = 1;
    /// The first `alike_from` decoders are of several kinds, the others of one; 0: all are of one kind. With vpp > 1 the former must fit in
    /// the first chunks of the ranks.
    std::int64_t alike_from = 0;
    /// Forward and backward of one microbatch of a chunk on a pipeline rank. Must not decrease with another decoder; of decoders of one
    /// kind only their number may matter.
    std::function<double(int pp_rank, const StageChunk& chunk)> seconds;
    /// True if a rank with these vpp chunks fits in memory. Must not become true with another decoder.
    std::function<bool(int pp_rank, const std::vector<StageChunk>& chunks)> fits;
};

struct BalancedStages {
    StageSplit split;    ///< written as a layout string
    double slowest = 0;  ///< seconds of the slowest rank: all its chunks, one microbatch
};

/// The split whose slowest rank is fastest: with m microbatches 1F1B takes about the sum of all ranks, which is the same for all splits,
/// and m - 1 times the slowest; interleaved, m times the slowest (step_time.cpp). Exact (to 1e-9 of the time) over the splits that
/// Megatron-LM's layout strings can express: the embedding first, the loss last, all MTP layers in one of the last pp chunks after every
/// decoder; no chunk is empty. With vpp > 1 a rank distributes its layers after the first chunk evenly over the other chunks, the last
/// first, and that distribution must fit.
///
/// Ties are resolved, with vpp = 1, by the least sum of squares of the ranks' times, else by first chunks near the average.
///
/// Method: bisection on a bound T of the slowest rank, until it is met exactly. For each T a programme runs over ranks and the number of
/// layers in their first chunks: with vpp = 1 it checks that the last rank can end at the last layer; with more, it maximises the number of
/// layers that fit in the ranks after their first chunks. Those layers are of one kind, so that any rank may take any of them.
///
/// Nothing if no split satisfies the limits, or above kMostBalancedLayers layers.
[[nodiscard]] std::optional<BalancedStages> balance_stages(const StageBalanceProblem& problem);

}  // namespace mgplan::planner
