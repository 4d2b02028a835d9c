#include "runtime/calibration/cpu_cluster.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include "plan/cluster/cluster_limits.hpp"

namespace mgplan::runtime {
namespace {

constexpr double kPlaceholder = 1e9;
/// Usual values of Ethernet of 1 Gb/s, bandwidth and half a round trip, used if they are not measured.
constexpr double kEthernetBytes = 125e6, kEthernetSeconds = 50e-6;

double product_rate(const ClusterCalibration& calibration, Dtype dtype) {
    double best = 0;
    for (const auto& each : calibration.products) {
        if (each.dtype != dtype) continue;
        best = std::max(best,
                        2.0 * static_cast<double>(each.m) * static_cast<double>(each.n) * static_cast<double>(each.k) / each.time.seconds);
    }
    return best;
}

}  // namespace

ClusterSpec cpu_cluster(const ClusterCalibration& calibration, std::int64_t memory_bytes) {
    namespace limits = cluster_limits;
    ClusterSpec cluster;
    cluster.name = "this-machine";
    cluster.gpu = "CPU: " + calibration.hardware;
    cluster.memory_bytes = std::clamp(memory_bytes, limits::kMemoryBytes.low, limits::kMemoryBytes.high);
    cluster.sources["memory_bytes"] = "this machine's memory, or what its control group allows";
    constexpr std::array<std::pair<Precision, Dtype>, 3> kPrecisions{
        {{Precision::bf16, Dtype::bf16}, {Precision::fp32, Dtype::fp32}, {Precision::fp64, Dtype::fp64}}};
    for (const auto& [precision, dtype] : kPrecisions) {
        if (const double rate = product_rate(calibration, dtype); rate > 0)
            cluster.peak_flops[precision] = std::clamp(rate, limits::kPeakFlops.low, limits::kPeakFlops.high);
    }
    cluster.sources["peak_flops"] = "the fastest product measured, one rank on one processor";
    if (cluster.peak_flops.empty()) {
        cluster.peak_flops[Precision::fp32] = kPlaceholder;
        cluster.sources["peak_flops"] = "a placeholder: nothing measured yet";
    }
    double memory = 0, copies = 0;
    for (const auto& each : calibration.kernels) memory = std::max(memory, static_cast<double>(each.bytes) / each.time.seconds);
    for (const auto& each : calibration.copies) copies = std::max(copies, static_cast<double>(each.bytes) / each.time.seconds);
    cluster.memory_bandwidth = memory > 0 ? memory : kPlaceholder;
    cluster.sources["memory_bandwidth"] =
        memory > 0 ? "the fastest memory-bound kernel measured, caches included" : "a placeholder: nothing measured yet";
    cluster.gpus_per_node = static_cast<int>(std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, 1024));
    cluster.sources["gpus_per_node"] = "processors of this machine, one for each rank";
    cluster.nvlink_domain = 1;
    cluster.pcie = {copies > 0 ? copies : kPlaceholder, 1e-6};
    cluster.sources["pcie"] =
        copies > 0 ? "the fastest copy measured: ranks of one machine exchange through its memory" : "a placeholder: nothing measured yet";
    cluster.sources["pcie.latency"] = "an assumption; what a collective costs beyond it is calibrated";
    cluster.nvlink = cluster.pcie;
    cluster.sources["nvlink"] = "none: as pcie";
    cluster.network = {kEthernetBytes, kEthernetSeconds};
    cluster.sources["network"] = "an assumption: 1 Gb/s Ethernet, not measured";
    cluster.nics_per_node = 1;
    cluster.nvls = false;
    cluster.compute_capability = static_cast<int>(limits::kComputeCapability.low);
    cluster.sources["compute_capability"] = "none: a CPU";
    cluster.calibration = calibration;
    return cluster;
}

}  // namespace mgplan::runtime
