#pragma once
// The least number of GPUs on which a job runs.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/workload.hpp"
#include "planner/ranking.hpp"

namespace mgplan::planner {

/// Numbers of GPUs up to `most` that a job may take of a cluster, in ascending order: powers of two inside a node, then whole nodes.
[[nodiscard]] std::vector<std::int64_t> worlds_of(const ClusterSpec& cluster, std::int64_t most);

enum class WorldFit : std::uint8_t { illegal, too_large, fits };

/// Returns the first of `worlds`, which ascend, that fits, and nothing if none is found. More GPUs do not always fit better, because sizes
/// must divide them. The first legal world of each power of two is therefore judged until one fits, and then every world below that one;
/// if none of these fits, every world above the last of them. None is judged twice.
[[nodiscard]] std::optional<std::int64_t> least_world(const std::vector<std::int64_t>& worlds,
                                                      const std::function<WorldFit(std::int64_t)>& judge);

/// Lower bound of the bytes that all ranks of any layout together hold of parameters, gradients and optimizer state: those of one rank that
/// holds everything, half of them with quantised GEMMs, whose weights may be stored narrower. 0 if one rank cannot hold everything.
[[nodiscard]] std::int64_t least_state_bytes(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model);

/// Returns some layout of the space that leaves the headroom with its allocator replayed; nothing if there is none. Leaves out overlaps and
/// CUDA graphs that the space leaves open, which free no memory. Throws ConfigError if no layout is legal, unless least_state_bytes()
/// already shows that none fits.
[[nodiscard]] std::optional<PlannedLayout> fitting_layout(const Workload& workload, const SearchSpace& space,
                                                          const RankingOptions& options);

/// Returns the fastest layout that leaves the headroom. For MoE models, whose search takes longer, it is the fastest among those whose tp,
/// cp, ep, etp and pp are those of the fastest without overlaps and CUDA graphs, their halves or their doubles. Nothing if no layout leaves
/// the headroom. Throws ConfigError if none is legal.
[[nodiscard]] std::optional<PlannedLayout> fast_layout(const Workload& workload, const SearchSpace& space, const RankingOptions& options);

}  // namespace mgplan::planner
