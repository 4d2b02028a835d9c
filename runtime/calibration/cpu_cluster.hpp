#pragma once
// A cluster file needs a data sheet's figures, which CPU ranks do not have: measured values are used instead.

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan::runtime {

/// This machine as a cluster of CPU ranks, one for each processor: peak rates, memory and link bandwidth are the largest that
/// `calibration` holds (placeholders until something was measured, and its sources say so). The calibration is part of it.
[[nodiscard]] ClusterSpec cpu_cluster(const ClusterCalibration& calibration, std::int64_t memory_bytes);

}  // namespace mgplan::runtime
