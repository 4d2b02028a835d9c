#pragma once
// The answer of `mgplan run` for people and programs: losses, and predicted beside measured.

#include <string>

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

}  // namespace mgplan::reports
