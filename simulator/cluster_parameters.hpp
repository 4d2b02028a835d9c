#pragma once
// Reads the calibration of a cluster file into the time model, and fits the model's parameters to the cluster's measurements.

#include <map>
#include <optional>
#include <string>

#include "plan/cluster/cluster_spec.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Defaults of the cluster's architecture, overridden by the calibration in its file.
[[nodiscard]] Calibration calibration_of(const ClusterSpec& cluster, Software software = kNewestSoftware);

/// An entry for lists of assumptions if the GPU's efficiencies are assumed: the cluster file has no calibration, but a source
/// "efficiencies" that names where they are taken from. calibration_of() then doubles all deviations.
[[nodiscard]] std::optional<std::string> assumed_efficiencies(const ClusterSpec& cluster);

/// Entries for lists of assumptions: device memory per GPU that no measurement backs (calibration.cpp). Nothing if the cluster file sets
/// the parameter (module_bytes, graph_node_bytes).
[[nodiscard]] std::optional<std::string> assumed_module_bytes(const ClusterSpec& cluster);
[[nodiscard]] std::optional<std::string> assumed_graph_node_bytes(const ClusterSpec& cluster);

/// Fits the time model's parameters to the cluster's measurements, with the model's own formulas:
/// - kernel_seconds, memory_efficiency: line through the memory-bound kernels, seconds = start + bytes / bandwidth, by least squares
///   of relative errors;
/// - gemm_efficiency, gemm_k_half: least mean |log(predicted / measured)| over all GEMMs, predicted by KernelTimes;
/// - attention_forward, attention_backward: median over the shapes;
/// - bandwidth_growth: the multiple of 0.01 up to 0.3 that brings the points of NVLink's collectives closest to lines;
/// - pcie_ or nvlink_efficiency, nvls_efficiency, all_to_all_efficiency, collective_seconds: medians of the slopes and intercepts of
///   lines through each collective's points, fitted as above;
/// - for CPU ranks, parameters of tiles, waves and host launches become neutral: their kernels have none of these.
/// Parameters without measurements are left out and keep their defaults. Except for medians, a fit needs at least three points.
[[nodiscard]] std::map<std::string, CalibratedValue> fitted_parameters(const ClusterSpec& cluster);

/// Copy of the cluster with scaled efficiencies: GEMMs, attention and memory-bound kernels by `compute`, links by `communication`. Each is
/// capped at 1, or at its old value if that is higher. `source`: recorded for the changed values.
[[nodiscard]] ClusterSpec with_scaled_efficiencies(const ClusterSpec& cluster, double compute, double communication,
                                                   const std::string& source);

}  // namespace mgplan::simulator
