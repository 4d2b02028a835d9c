#pragma once
// Cells that several tables share: the sizes of a layout as columns of CSV, and memory.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"

namespace mgplan::reports {

/// Names of the columns: tp to vpp, micro_batch, num_microbatches, sequence_parallel, cp_comm_type, recompute.
[[nodiscard]] std::vector<std::string> layout_csv_columns();
/// A layout's values in them.
[[nodiscard]] std::vector<std::string> layout_csv_row(const Layout& layout);
/// Bytes in GiB with one decimal: "74.7".
[[nodiscard]] std::string gib(std::int64_t bytes);

}  // namespace mgplan::reports
