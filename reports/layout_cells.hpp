#pragma once
// Table cells shared by several tables: the sizes of a layout as CSV columns, and memory.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/layout/layout.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {

/// A row of a table: names of its columns and their cells.
using NamedCells = std::vector<std::pair<std::string, std::string>>;

/// The sizes of a layout and how it computes: tp to vpp, micro_batch, num_microbatches, sequence_parallel, cp_comm_type, recompute.
[[nodiscard]] NamedCells layout_csv(const Layout& layout);
/// The table of such rows; `first` names the columns, which may be more than those of a row.
[[nodiscard]] Table table_of(const NamedCells& first, const std::vector<NamedCells>& rows);
/// "4+sp": tensor parallel size with sequence parallelism, "4-sp" without it; "1" of one rank, which has no choice.
[[nodiscard]] std::string tp_cell(const Layout& layout);
/// "2", or with the cp_comm_type if it is not p2p: "2ag", "2a2a".
/// "8", "8x4" with four virtual stages a rank.
[[nodiscard]] std::string pp_cell(const Layout& layout);
[[nodiscard]] std::string cp_cell(const Layout& layout);
/// "tp-dp-pp": the order of the axes with more than one rank, which determines all groups. `moe`: the model has experts.
[[nodiscard]] std::string order_cell(const ParallelSizes& sizes, bool moe);
/// Bytes in GiB with one decimal: "74.7".
[[nodiscard]] std::string gib(std::int64_t bytes);

}  // namespace mgplan::reports
