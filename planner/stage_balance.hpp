#pragma once
// An exact dynamic programme that cuts a model into pipeline stages so that the slowest of them is as fast as can be. Like the
// search it knows no cost model: seconds and memory are functions that it is given.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/layout/stage_split.hpp"

namespace mgplan::planner {

/// More decoder layers than this are not balanced: work grows with their square.
inline constexpr std::int64_t kMostBalancedLayers = 1024;

struct StageBalanceProblem {
    std::int64_t layers = 0;
    std::int64_t mtp_layers = 0;
    int pp = 2;
    int vpp = 1;
    /// Decoders in front of it are of several kinds, from it on of one; 0: all are of one kind. With vpp > 1 they must all find
    /// room in the first chunks of the ranks.
    std::int64_t alike_from = 0;
    /// Forward and backward of one microbatch of a chunk on a pipeline rank. Never less for a decoder more; of decoders alike
    /// only their number matters.
    std::function<double(int pp_rank, const StageChunk& chunk)> seconds;
    /// Whether a rank with these chunks (as many as vpp) fits in memory. False for a decoder more where it was false.
    std::function<bool(int pp_rank, const std::vector<StageChunk>& chunks)> fits;
};

struct BalancedStages {
    StageSplit split;    ///< of a layout string
    double slowest = 0;  ///< seconds of the slowest rank: all its chunks, one microbatch
};

/// The split whose slowest rank is fastest: with m microbatches 1F1B takes about the sum of all ranks, which no split changes,
/// and m - 1 times the slowest; interleaved, m times the slowest (step_time.cpp). Exact (to 1e-9 of the time) over the splits
/// that Megatron-LM's layout strings write: the embedding first, the loss last, all MTP layers in one of the last pp chunks
/// behind every decoder; every chunk holds something. With vpp > 1 a rank spreads the layers behind its first chunk so that its
/// chunks become alike, the last first, and that spread has to fit.
///
/// Ties go, with vpp = 1, to the least sum of squares of the ranks' times, else first chunks near the average.
///
/// How. A bound T on the slowest rank is halved until it is met exactly. For each T a programme over ranks and the layers that
/// their first chunks have taken: with vpp = 1 whether the last rank can end at the last layer; with more, the most layers that
/// the ranks have room for behind their first chunks. Those are alike, so that any rank may take any of them.
///
/// Nothing where no split satisfies the limits, or more than kMostBalancedLayers are to be split.
[[nodiscard]] std::optional<BalancedStages> balance_stages(const StageBalanceProblem& problem);

}  // namespace mgplan::planner
