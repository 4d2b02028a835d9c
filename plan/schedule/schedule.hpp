#pragma once
// The pipeline schedule as data: which forward or backward of which microbatch and chunk each pipeline rank runs, in order.
// The simulator prices exactly this list and the runtime executes exactly this list.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace mgplan {

enum class ScheduleKind : std::uint8_t { none, one_f_one_b, interleaved };
[[nodiscard]] std::string_view to_string(ScheduleKind kind);  ///< "none", "1f1b", "interleaved"

/// Pass that an entry of a rank's list runs on one microbatch of one model chunk.
enum class Pass : std::uint8_t {
    forward,
    backward,         ///< gradients of input and weights in one
    input_gradient,   ///< the previous stage waits for it
    weight_gradient,  ///< no stage waits for it
};
inline constexpr int kPasses = 4;
/// "forward", "backward", "input gradient", "weight gradient".
[[nodiscard]] std::string_view to_string(Pass pass);

struct PipelineOp {
    Pass pass = Pass::forward;
    std::int16_t chunk = 0;
    std::int32_t microbatch = 0;
    bool operator==(const PipelineOp&) const = default;
};
/// True if the chunk holds nothing of the op's microbatch after the op.
[[nodiscard]] constexpr bool ends_microbatch(Pass pass) {
    return pass == Pass::backward || pass == Pass::weight_gradient;
}
/// +k for a forward and -k for a backward of chunk k-1, as Megatron-LM's order lists have them.
[[nodiscard]] constexpr int signed_chunk(const PipelineOp& op) {
    return op.pass == Pass::forward ? op.chunk + 1 : -op.chunk - 1;
}

/// Most forwards and backwards of one rank: 2·vpp·microbatches.
inline constexpr std::int64_t kMaxRankOps = std::int64_t{1} << 25;

struct ScheduleRequest {
    int pp = 1;
    int vpp = 1;
    std::int64_t microbatches = 1;
    std::optional<std::int64_t> group_size;  ///< microbatch group per virtual stage; default pp
    std::optional<ScheduleKind> kind;        ///< default: none for pp = 1, interleaved for vpp > 1, else 1f1b
    bool forward_only = false;
    bool operator==(const ScheduleRequest&) const = default;
};

/// One pipeline rank's list: what the trainer runs and the simulator replays.
struct RankSchedule {
    int rank = 0;
    std::int64_t warmup = 0;  ///< forwards before the first backward
    std::vector<PipelineOp> ops;
    /// Most (microbatch, chunk) pairs forwarded and waiting for their last gradient; 0 when forward only: nothing waits.
    std::int64_t peak_live = 0;
    std::vector<std::int64_t> live_per_chunk;  ///< the same for each chunk alone
};

/// A valid schedule: sizes, kind and the (microbatch, chunk) table of the forwards. Immutable.
class Schedule {
public:
    /// Throws ConfigError for what Megatron-LM's real schedules refuse (core/pipeline_parallel/schedules.py):
    /// group size < pp or > microbatches, a last group shorter than pp, chunks without a pipeline; and for a list of
    /// more than kMaxRankOps entries a rank.
    explicit Schedule(const ScheduleRequest& request);

    [[nodiscard]] ScheduleKind kind() const { return kind_; }
    [[nodiscard]] int pp() const { return request_.pp; }
    [[nodiscard]] int vpp() const { return request_.vpp; }
    [[nodiscard]] std::int64_t microbatches() const { return request_.microbatches; }
    [[nodiscard]] std::int64_t group_size() const { return group_size_; }
    [[nodiscard]] bool forward_only() const { return request_.forward_only; }
    /// Forwards in order: (microbatch, chunk) of each virtual microbatch.
    [[nodiscard]] std::vector<std::pair<std::int64_t, int>> table() const;
    [[nodiscard]] RankSchedule rank(int pp_rank) const;

private:
    ScheduleRequest request_;
    ScheduleKind kind_;
    std::int64_t group_size_;
};

/// The reason why the interleaved schedule refuses these sizes as a short constant name (group_size_below_pp,
/// group_size_above_microbatches, last_group_shorter_than_pp), or nothing. Cheap: the planner calls it per candidate.
[[nodiscard]] std::optional<std::string_view> interleaved_refusal(int pp, std::int64_t microbatches, std::int64_t group_size);

/// (microbatch, chunk) pairs alive per chunk at the instant when their sum is largest on `pp_rank`: multiplies activation bytes. Takes
/// interleaved for vpp > 1, 1F1B for vpp = 1, none for pp = 1. The peak comes right after the first forward that follows the warm-up,
/// before any backward, so this is a closed form over the table: O(vpp). The sizes must be legal (see interleaved_refusal).
[[nodiscard]] std::vector<std::int64_t> live_at_peak(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

}  // namespace mgplan
