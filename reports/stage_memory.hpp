#pragma once
// Memory of every pipeline stage, as text and JSON: output of `simulate --per-rank`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "simulator/memory/timeline.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// The op at a rank's peak, and the tensor that it allocates.
struct PeakOp {
    std::string
        kind;  ///< a pass's name (plan/schedule/schedule.hpp), "step_begin", "step_end" (reductions, norm, update) or "held" (all the time)
    std::optional<int> chunk;                ///< chunk of the pass; from 0
    std::optional<std::int64_t> microbatch;  ///< set if there is a timeline
    std::string tensor;                      ///< as text; empty for "held"
    /// "backward of chunk 1, microbatch 3: gradient of the logits"
    [[nodiscard]] std::string text() const;
};

/// One stage's first rank; the others of the stage count as equal.
struct StageMemory {
    int stage = 0;
    std::int64_t first_rank = 0;
    simulator::RankMemory memory;
    bool exact = false;  ///< true: memory of mgplan's own runtime; false: the estimate
    /// Peak by which the search judges, whatever `exact`: for MoE models at p99 of the routing skew.
    std::int64_t estimated_peak = 0;
    std::optional<PeakOp> peak_op;  ///< set if known
};

[[nodiscard]] PeakOp peak_op_of(const simulator::StageTimeline& timeline);
/// For an instant without a schedule: sets no microbatch.
[[nodiscard]] PeakOp peak_op_of(const simulator::PeakInstant& instant);

/// The stage with the largest peak, the first of equal ones; the list must not be empty.
[[nodiscard]] const StageMemory& fullest(const std::vector<StageMemory>& stages);

/// The fields of predicted.memory, and `peak_op`: {"kind", "chunk", "microbatch", "tensor"} or null if unknown.
[[nodiscard]] nlohmann::ordered_json stage_memory_to_json(const StageMemory& stage, std::int64_t limit_bytes);

/// The fields of stage_memory_to_json() as CSV: names of the columns after rank and stage, and one stage's values. Unknown values are
/// empty.
[[nodiscard]] std::vector<std::string> stage_memory_csv_columns();
[[nodiscard]] std::vector<std::string> stage_memory_csv_row(const StageMemory& stage, std::int64_t limit_bytes);

/// Explanation of `estimate` and p99, to be printed below a table of stages.
[[nodiscard]] std::string estimate_text(const std::vector<StageMemory>& stages);

/// Two tables: categories at the peak; and the peak (for MoE models also at p99 of the routing skew) next to framework, reserved, limit and
/// estimate with the op at the peak.
[[nodiscard]] std::string stage_memory_text(const std::vector<StageMemory>& stages, std::int64_t limit_bytes);

}  // namespace mgplan::reports
