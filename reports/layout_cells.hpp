#pragma once
// Table cells shared by several tables: the sizes of a layout as CSV columns, and memory.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"

namespace mgplan::reports {

/// Names of the columns: tp to vpp, micro_batch, num_microbatches, sequence_parallel, cp_comm_type, recompute.
[[nodiscard]] std::vector<std::string> layout_csv_columns();
/// A layout's values in these columns.
[[nodiscard]] std::vector<std::string> layout_csv_row(const Layout& layout);
/// "4+sp": tensor parallel size with sequence parallelism, "4-sp" without it; "1" for one rank.
[[nodiscard]] std::string tp_cell(const Layout& layout);
/// "2", or with the cp_comm_type if it is not p2p: "2ag", "2a2a".
[[nodiscard]] std::string cp_cell(const Layout& layout);
/// "tp-dp-pp": the order of the axes with more than one rank, which determines all groups. `moe`: the model has experts.
[[nodiscard]] std::string order_cell(const ParallelSizes& sizes, bool moe);
/// Bytes in GiB with one decimal: "74.7".
[[nodiscard]] std::string gib(std::int64_t bytes);

}  // namespace mgplan::reports
