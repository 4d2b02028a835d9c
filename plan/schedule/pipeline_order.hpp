#pragma once
// Passes of every rank of a pipeline, in order: backwards may be split into the gradient of the input and that of the weights, and chunks
// may lie in a V. Plain data, made once and then read.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace mgplan {

/// Schedules with separate input-gradient and weight-gradient passes.
enum class SplitSchedule : std::uint8_t { zb_h1, zb_h2, zb_v, v_half, v_min, dualpipe_v };
[[nodiscard]] std::string_view to_string(SplitSchedule kind);  ///< "zb-h1", …
[[nodiscard]] std::optional<SplitSchedule> parse_split_schedule(std::string_view text);
[[nodiscard]] std::vector<std::string> split_schedule_names();
/// Model chunks of a rank: 1 of zb-h1 and zb-h2, 2 of the others.
[[nodiscard]] int chunks_of(SplitSchedule kind);
/// True if these chunks lie in a V (PipelineOrder::v_shaped): those of all kinds with two.
[[nodiscard]] bool is_v_shaped(SplitSchedule kind);

/// The lists of all ranks.
struct PipelineOrder {
    int pp = 1;
    int chunks = 1;
    std::int64_t microbatches = 1;
    /// Two chunks in a V: chunk 0 goes down the ranks and chunk 1 comes back up, so that the last rank holds two neighbouring
    /// stages and the first rank both ends. Otherwise chunk c of rank r is stage c·pp + r.
    bool v_shaped = false;
    std::vector<std::vector<PipelineOp>> ranks;

    [[nodiscard]] int stages() const { return pp * chunks; }
    [[nodiscard]] int stage_of(int rank, int chunk) const { return v_shaped && chunk == 1 ? 2 * pp - 1 - rank : chunk * pp + rank; }
    /// Rank that holds a stage.
    [[nodiscard]] int rank_of(int stage) const { return v_shaped && stage >= pp ? 2 * pp - 1 - stage : stage % pp; }
};

/// Most passes of all ranks together that an order may have.
inline constexpr std::int64_t kMostOrderOps = std::int64_t{1} << 23;

/// The lists of a schedule that Megatron-LM runs; it must have at most kMostOrderOps entries.
[[nodiscard]] PipelineOrder order_of(const Schedule& schedule);

struct SplitScheduleRequest {
    SplitSchedule kind = SplitSchedule::zb_h1;
    int pp = 2;
    std::int64_t microbatches = 1;
};

/// Throws ConfigError: pp below 2, no microbatch, more than kMostOrderOps passes; and for dualpipe-v fewer than 2·pp
/// microbatches, which its authors' code refuses too.
void check_split_schedule(const SplitScheduleRequest& request);
/// The lists of a split schedule; throws as check_split_schedule() does.
[[nodiscard]] PipelineOrder split_order(const SplitScheduleRequest& request);

/// Most (microbatch, chunk) pairs of a rank forwarded whose last gradient is not made: its activations in units of a chunk.
[[nodiscard]] std::int64_t peak_live(const PipelineOrder& order, int rank);

}  // namespace mgplan
