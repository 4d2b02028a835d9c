#pragma once
// The answer of `mgplan run` for people and programs: losses, and predicted beside measured.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/measurement/run_values.hpp"

namespace mgplan::reports {

/// JSON of CLI.md, "run". A loss or norm that is no finite number is null.
[[nodiscard]] std::string run_report_json(const runtime::RunValues& values);

/// Tables: some of the steps, memory of the ranks (those with equal numbers share their lines), collectives of all ranks,
/// time per op.
[[nodiscard]] std::string run_report_text(const runtime::RunValues& values);

/// One number a row: kind (step, memory, collective, op), index (step or rank), name, measured, predicted, difference;
/// what is not predicted leaves the last two empty.
[[nodiscard]] std::string run_report_csv(const runtime::RunValues& values);

/// Name and value of every number of a rank's memory: "peak_bytes", "breakdown.parameters" …
[[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> memory_numbers(const runtime::MemoryValues& memory);

}  // namespace mgplan::reports
