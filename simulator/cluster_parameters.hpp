#pragma once
// Between a cluster file's calibration and the time model: what it says is read, and what was measured is fitted.

#include <map>
#include <optional>
#include <string>

#include "plan/cluster/cluster_spec.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// The defaults of the cluster's architecture, and above them what its calibration says.
[[nodiscard]] Calibration calibration_of(const ClusterSpec& cluster, Software software = kNewestSoftware);

/// A sentence for lists of assumptions where no table and no measurement of the cluster's GPU says what share of its peaks it reaches (its
/// file has a source for "efficiencies", which says whose shares are taken): calibration_of() doubles all deviations then.
[[nodiscard]] std::optional<std::string> assumed_efficiencies(const ClusterSpec& cluster);

/// Sentences for lists of assumptions: bytes of device memory that rest on no measurement (calibration.cpp). Nothing where the
/// cluster's file names the parameter, module_bytes or graph_node_bytes.
[[nodiscard]] std::optional<std::string> assumed_module_bytes(const ClusterSpec& cluster);
[[nodiscard]] std::optional<std::string> assumed_graph_node_bytes(const ClusterSpec& cluster);

/// The parameters that a cluster's measurements give, in the forms that the time model itself uses:
/// - kernel_seconds, memory_efficiency: the line through the memory-bound kernels, seconds = start + bytes / bandwidth, with the
///   least squares of relative errors;
/// - gemm_efficiency, gemm_k_half: those with the least mean |log(predicted / measured)| over all products, by KernelTimes;
/// - attention_forward, attention_backward: the median over the shapes;
/// - bandwidth_growth: of the hundredths up to 0.3 the one with which the points of NVLink's collectives come nearest to lines;
/// - pcie_ or nvlink_efficiency, nvls_efficiency, all_to_all_efficiency, collective_seconds: lines through each collective's
///   points, as above, medians of their slopes and intercepts;
/// - for CPU ranks, whose kernels have neither tiles nor waves and whose host work is the kernels themselves, the parameters
///   that stand for these become neutral.
/// What was not measured is left out: the defaults stay. Nothing is fitted to less than three points, medians excepted.
[[nodiscard]] std::map<std::string, CalibratedValue> fitted_parameters(const ClusterSpec& cluster);

/// The same cluster with its efficiencies multiplied: those of products, attention and memory-bound kernels by `compute`,
/// those of links by `communication`, each kept within what calibration_parameters() allows, and none that was not above 1
/// rising above it. `source`: of the changed values.
[[nodiscard]] ClusterSpec with_scaled_efficiencies(const ClusterSpec& cluster, double compute, double communication,
                                                   const std::string& source);

}  // namespace mgplan::simulator
