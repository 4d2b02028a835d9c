#pragma once
// Output of `mgplan run` as text and JSON: losses, and predicted next to measured values.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/measurement/run_values.hpp"

namespace mgplan::reports {

/// JSON of CLI.md, "run". A loss or norm that is not finite is null.
[[nodiscard]] std::string run_report_json(const runtime::RunValues& values);

/// Tables: some of the steps, memory of the ranks (ranks with equal numbers share lines), collectives of all ranks, time per op.
[[nodiscard]] std::string run_report_text(const runtime::RunValues& values);

/// One number a row: kind (step, memory, collective, op), index (step or rank), name, measured, predicted, difference; the last two are
/// empty for values that are not predicted.
[[nodiscard]] std::string run_report_csv(const runtime::RunValues& values);

/// Name and value of every number of a rank's memory: "peak_bytes", "breakdown.parameters" …
[[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> memory_numbers(const runtime::MemoryValues& memory);

}  // namespace mgplan::reports
