#include "simulator/compute/kernels.hpp"

#include <algorithm>
#include <cmath>

#include "plan/cluster/architectures.hpp"

namespace mgplan::simulator {
namespace {

/// Upper limit of the ratio of nvfp4's to 16 bits' GEMM rate that GPUs approach, whatever their peak.
constexpr double kMostFaster = 4;

/// Peak of ops that stay in 16 bits under fp8; the fp8 peak if the cluster file names only that.
double storage_peak(const ClusterSpec& cluster, Precision precision) {
    const double peak = cluster.peak(quantised(precision) ? Precision::bf16 : precision);
    return peak > 0 ? peak : cluster.peak(precision);
}

/// FLOPs of the last query tile of 128 rows, which visits all keys alone while other multiprocessors are idle, counted as if all of them
/// worked.
double last_tile(const Calibration& calibration, std::int64_t keys, std::int64_t head_dim) {
    return calibration.multiprocessors * 4.0 * 128.0 * static_cast<double>(keys) * static_cast<double>(head_dim);
}

/// Rate relative to heads of 128. Wider heads leave room for fewer stages of tiles; narrower heads have the same number of exponentials for
/// less GEMM work.
double width_share(double loss, double exponentials, std::int64_t head_dim) {
    if (head_dim < 128) return 1 / (1 - exponentials + exponentials * 128 / static_cast<double>(std::max<std::int64_t>(1, head_dim)));
    return 1 / (1 + loss * std::max(0.0, static_cast<double>(head_dim - 128) / 64));
}

/// Share of the GEMMs' peak.
double efficiency(const Calibration& calibration, Precision precision, QuantisedFormat format) {
    if (precision == Precision::nvfp4) return calibration.nvfp4_gemm_efficiency;
    if (precision != Precision::fp8) return calibration.gemm_efficiency;
    const bool scaled_in_blocks = format == QuantisedFormat::mxfp8 || format == QuantisedFormat::blockwise;
    return calibration.fp8_gemm_efficiency * (scaled_in_blocks ? calibration.mxfp8_rate : 1);
}

}  // namespace

KernelTimes::KernelTimes(const ClusterSpec& cluster, const Calibration& calibration, Precision precision, std::int64_t gradient_bytes,
                         QuantisedFormat format)
    : calibration_(calibration),
      // Clock rates of A100, and of H100 and B200, at which their data sheets state the peaks.
      clock_(cluster.compute_capability < architectures::kHopper ? 1.41e9 : 1.83e9),
      peak_(cluster.peak(precision)),
      peak_16_(storage_peak(cluster, precision)),
      efficiency_(efficiency(calibration, precision, format)),
      k_half_(calibration.gemm_k_half * (quantised(precision) ? std::min(peak_ / peak_16_, kMostFaster) : 1)),
      element_bytes_(precision == Precision::fp32   ? 4
                     : precision == Precision::fp64 ? 8
                                                    : 2),
      gradient_bytes_(static_cast<double>(gradient_bytes)),
      memory_bandwidth_(cluster.memory_bandwidth * calibration.memory_efficiency),
      gemm_bandwidth_(cluster.memory_bandwidth * calibration.gemm_memory_efficiency) {}

double KernelTimes::gemm_rate(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    // Whole waves of output tiles: the last wave occupies all multiprocessors however few tiles it has. Libraries reduce this with split-k
    // and stream-k for deep GEMMs, so half of the loss is counted.
    const double tiles = std::ceil(static_cast<double>(m) / calibration_.tile_m) * std::ceil(static_cast<double>(n) / calibration_.tile_n) *
                         static_cast<double>(count);
    const double waves = tiles / calibration_.multiprocessors;
    const double used = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(count) /
                        (std::ceil(waves) * calibration_.multiprocessors * calibration_.tile_m * calibration_.tile_n);
    const double depth = static_cast<double>(k) / (static_cast<double>(k) + k_half_);
    return peak_ * efficiency_ * (0.5 + 0.5 * std::min(used, 1.0)) * depth;
}

double KernelTimes::gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
    const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k), dc = static_cast<double>(count);
    const double arithmetic = 2 * dm * dn * dk * dc / gemm_rate(m, n, k, count);
    const double traffic = element_bytes_ * dc * (dm * dk + dk * dn + dm * dn) / gemm_bandwidth_;
    return std::max(arithmetic, traffic) + calibration_.kernel_seconds;
}

double KernelTimes::accumulating(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, double rate) const {
    if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
    const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k), dc = static_cast<double>(count);
    const double arithmetic = 2 * dm * dn * dk * dc / rate;
    // The epilogue reads and writes the gradient buffer; the main loops of other tiles hide a part of that.
    const double sum = 2 * gradient_bytes_ * dc * dm * dn / gemm_bandwidth_;
    const double operands = element_bytes_ * dc * (dm * dk + dk * dn) / gemm_bandwidth_;
    return std::max(arithmetic + calibration_.accumulation_share * sum, operands + sum) + calibration_.kernel_seconds;
}

double KernelTimes::weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k) const {
    return accumulating(m, n, k, 1, gemm_rate(m, n, k, 1));
}

double KernelTimes::grouped_gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
    // Experts with few tokens leave their tiles' pipelines half empty.
    const double filled = static_cast<double>(m) / (static_cast<double>(m) + calibration_.grouped_rows_half);
    const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k), dc = static_cast<double>(count);
    const double arithmetic = 2 * dm * dn * dk * dc / (gemm_rate(m, n, k, count) * filled);
    const double traffic = element_bytes_ * dc * (dm * dk + dk * dn + dm * dn) / gemm_bandwidth_;
    return std::max(arithmetic, traffic) + calibration_.kernel_seconds;
}

double KernelTimes::grouped_weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    return accumulating(m, n, k, count, gemm_rate(m, n, k, count) * calibration_.grouped_weight_gradient);
}

double KernelTimes::products(double flops) const {
    return flops / (peak_16_ * efficiency_) + calibration_.kernel_seconds;
}

double KernelTimes::scan(double flops, bool backward) const {
    const double rate = backward ? calibration_.scan_backward : calibration_.scan_forward;
    return rate > 0 ? flops / rate + calibration_.kernel_seconds : products(flops);
}

double KernelTimes::multiprocessor_clocks(double clocks) const {
    return clocks / (calibration_.multiprocessors * clock_) + calibration_.kernel_seconds;
}

double KernelTimes::attention_forward(double flops, std::int64_t keys, std::int64_t head_dim) const {
    const double tile = last_tile(calibration_, keys, head_dim);
    const double work = std::max(flops + calibration_.attention_tail * tile, calibration_.attention_critical * tile);
    const double rate = peak_16_ * calibration_.attention_forward *
                        width_share(calibration_.attention_width_forward, calibration_.attention_exponentials_forward, head_dim);
    return work / rate + calibration_.kernel_seconds;
}

double KernelTimes::attention_backward(double flops, std::int64_t keys, std::int64_t head_dim) const {
    const double work = flops + calibration_.attention_tail_backward * last_tile(calibration_, keys, head_dim);
    const double rate = peak_16_ * calibration_.attention_backward *
                        width_share(calibration_.attention_width_backward, calibration_.attention_exponentials_backward, head_dim);
    return work / rate + calibration_.kernel_seconds;
}

double KernelTimes::memory_bound(double bytes, Traffic traffic) const {
    double share = 1;
    switch (traffic) {
        case Traffic::streaming:
            break;
        case Traffic::softmax:
            share = calibration_.softmax_share;
            break;
        case Traffic::permutation:
            share = calibration_.permutation_share;
            break;
        case Traffic::cross_entropy:
            share = calibration_.cross_entropy_share;
            break;
    }
    return bytes / (memory_bandwidth_ * share) + calibration_.kernel_seconds;
}

}  // namespace mgplan::simulator
