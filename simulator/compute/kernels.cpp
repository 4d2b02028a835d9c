#include "simulator/compute/kernels.hpp"

#include <algorithm>
#include <cmath>

namespace mgplan::simulator {
namespace {

/// Rate of what fp8 leaves in 16 bits; a cluster file may name fp8 alone.
double storage_peak(const ClusterSpec& cluster, Precision precision) {
    const double peak = cluster.peak(precision == Precision::fp8 ? Precision::bf16 : precision);
    return peak > 0 ? peak : cluster.peak(precision);
}

}  // namespace

KernelTimes::KernelTimes(const ClusterSpec& cluster, const Calibration& calibration, Precision precision)
    : calibration_(calibration),
      peak_(cluster.peak(precision)),
      peak_16_(storage_peak(cluster, precision)),
      efficiency_(precision == Precision::fp8 ? calibration.fp8_gemm_efficiency : calibration.gemm_efficiency),
      element_bytes_(precision == Precision::fp32   ? 4
                     : precision == Precision::fp64 ? 8
                                                    : 2),
      memory_bandwidth_(cluster.memory_bandwidth * calibration.memory_efficiency) {}

double KernelTimes::gemm_rate(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    // Whole waves of output tiles: the last wave keeps all multiprocessors waiting however few tiles it has. Libraries
    // soften this with split-k and stream-k for deep products, so half of the loss is counted.
    const double tiles = std::ceil(static_cast<double>(m) / calibration_.tile_m) * std::ceil(static_cast<double>(n) / calibration_.tile_n) *
                         static_cast<double>(count);
    const double waves = tiles / calibration_.multiprocessors;
    const double used = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(count) /
                        (std::ceil(waves) * calibration_.multiprocessors * calibration_.tile_m * calibration_.tile_n);
    const double depth = static_cast<double>(k) / (static_cast<double>(k) + calibration_.gemm_k_half);
    return peak_ * efficiency_ * (0.5 + 0.5 * std::min(used, 1.0)) * depth;
}

double KernelTimes::gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
    const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k), dc = static_cast<double>(count);
    const double arithmetic = 2 * dm * dn * dk * dc / gemm_rate(m, n, k, count);
    const double traffic = element_bytes_ * dc * (dm * dk + dk * dn + dm * dn) / memory_bandwidth_;
    return std::max(arithmetic, traffic) + calibration_.kernel_seconds;
}

double KernelTimes::grouped_gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, std::int64_t rows) const {
    if (m <= 0 || n <= 0 || k <= 0 || count <= 0 || rows <= 0) return 0;
    // Experts with few tokens leave their tiles' pipelines half empty; as deep as they are, weight gradients lose less of it
    // again, since their depth k is already counted.
    const double half = m == rows ? calibration_.grouped_rows_half : calibration_.grouped_rows_half / 3;
    const double filled = static_cast<double>(rows) / (static_cast<double>(rows) + half);
    const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k), dc = static_cast<double>(count);
    const double arithmetic = 2 * dm * dn * dk * dc / (gemm_rate(m, n, k, count) * filled);
    const double traffic = element_bytes_ * dc * (dm * dk + dk * dn + dm * dn) / memory_bandwidth_;
    return std::max(arithmetic, traffic) + calibration_.kernel_seconds;
}

double KernelTimes::attention_tail(std::int64_t keys, std::int64_t head_dim) const {
    // The last query tile of 128 rows walks all keys alone: 4·128·keys·head_dim FLOPs on one multiprocessor while the
    // others run dry. Counted as work of all multiprocessors.
    return calibration_.attention_tail * calibration_.multiprocessors * 4.0 * 128.0 * static_cast<double>(keys) *
           static_cast<double>(head_dim);
}

double KernelTimes::attention_forward(double flops, std::int64_t keys, std::int64_t head_dim) const {
    return (flops + attention_tail(keys, head_dim)) / (peak_16_ * calibration_.attention_forward) + calibration_.kernel_seconds;
}

double KernelTimes::attention_backward(double flops, std::int64_t keys, std::int64_t head_dim) const {
    return (flops + attention_tail(keys, head_dim)) / (peak_16_ * calibration_.attention_backward) + calibration_.kernel_seconds;
}

double KernelTimes::memory_bound(double bytes) const {
    return bytes / memory_bandwidth_ + calibration_.kernel_seconds;
}

}  // namespace mgplan::simulator
