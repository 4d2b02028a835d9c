#pragma once
// Memory of every pipeline stage, for people and programs: what `simulate --per-rank` shows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "simulator/memory/timeline.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// What runs, and what it allocates, when a rank is fullest.
struct PeakOp {
    std::string
        kind;  ///< a pass's name (plan/schedule/schedule.hpp), "step_begin", "step_end" (reductions, norm, update) or "held" (all the time)
    std::optional<int> chunk;                ///< of the passes; from 0
    std::optional<std::int64_t> microbatch;  ///< known where there is a timeline
    std::string tensor;                      ///< in words; empty for "held"
    /// "backward of chunk 1, microbatch 3: gradient of the logits"
    [[nodiscard]] std::string text() const;
};

/// One stage's first rank; the others of the stage are taken as equal.
struct StageMemory {
    int stage = 0;
    std::int64_t first_rank = 0;
    simulator::RankMemory memory;
    bool exact = false;  ///< what mgplan's own runtime holds; else the estimate
    /// By which the search judges, whatever `exact`: of mixtures at p99 of the routing skew.
    std::int64_t estimated_peak = 0;
    std::optional<PeakOp> peak_op;  ///< where it is known
};

[[nodiscard]] PeakOp peak_op_of(const simulator::StageTimeline& timeline);
/// Without a schedule: no microbatch.
[[nodiscard]] PeakOp peak_op_of(const simulator::PeakInstant& instant);

/// The stage with the most bytes at its peak, the first of equals; there must be one.
[[nodiscard]] const StageMemory& fullest(const std::vector<StageMemory>& stages);

/// The fields of predicted.memory, and `peak_op`: {"kind", "chunk", "microbatch", "tensor"} or null where it is not known.
[[nodiscard]] nlohmann::ordered_json stage_memory_to_json(const StageMemory& stage, std::int64_t limit_bytes);

/// The same as a row of CSV: names of the columns behind rank and stage, and one stage's values. What is not known is empty.
[[nodiscard]] std::vector<std::string> stage_memory_csv_columns();
[[nodiscard]] std::vector<std::string> stage_memory_csv_row(const StageMemory& stage, std::int64_t limit_bytes);

/// What `estimate` and p99 mean, for below a table of stages.
[[nodiscard]] std::string estimate_text(const std::vector<StageMemory>& stages);

/// Two tables: categories at the peak; and the peak (of mixtures also at p99 of the routing skew) beside framework, reserved,
/// limit and estimate with the op at the peak.
[[nodiscard]] std::string stage_memory_text(const std::vector<StageMemory>& stages, std::int64_t limit_bytes);

}  // namespace mgplan::reports
