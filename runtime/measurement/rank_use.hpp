#pragma once
// The counters of an allocator and of a transport, as values.

#include <cstdint>

#include "model/communicator/collective_counter.hpp"
#include "model/device/memory.hpp"
#include "model/graphs/layer_graphs.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// `host_bytes`: the most that waited in the host's memory (Device::host_peak).
[[nodiscard]] RankUse rank_use(const model::MemoryUse& memory, std::int64_t reserved_bytes, std::int64_t host_bytes,
                               const model::CollectiveCounter& traffic);

[[nodiscard]] GraphValues graph_values(const model::GraphTotals& totals);

/// Returns measured - predicted, field by field; a collective that only one side has is compared with zeros.
[[nodiscard]] RankUse difference(const RankUse& measured, const RankUse& predicted);

/// Returns true if every field is 0.
[[nodiscard]] bool is_zero(const RankUse& use);

/// Fills in the differences of the ranks' measurements and predictions, and the sums over all ranks.
void compare(RunValues& values);

}  // namespace mgplan::runtime
