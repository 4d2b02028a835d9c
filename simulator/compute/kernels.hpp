#pragma once
// Seconds of the kinds of kernel a layer is made of, and their sums.

#include <cstdint>

#include "plan/cluster_spec.hpp"
#include "simulator/calibration.hpp"

namespace mgplan::simulator {

/// Rates of one GPU at one precision.
class KernelTimes {
public:
    KernelTimes(const ClusterSpec& cluster, const Calibration& calibration, Precision precision);

    /// C (m, n) = A (m, k) · B (k, n), `count` such products one after the other in one kernel.
    [[nodiscard]] double gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) const;
    /// `count` products of equal shape in a grouped kernel (experts of `rows` tokens each; m or, for weight gradients, k).
    [[nodiscard]] double grouped_gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, std::int64_t rows) const;
    /// Fused attention of `flops` (the causal half) whose longest rows see `keys` keys of width `head_dim`.
    [[nodiscard]] double attention_forward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    [[nodiscard]] double attention_backward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    /// A kernel that reads and writes `bytes` in all.
    [[nodiscard]] double memory_bound(double bytes) const;

private:
    [[nodiscard]] double attention_tail(std::int64_t keys, std::int64_t head_dim) const;
    [[nodiscard]] double gemm_rate(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;

    const Calibration& calibration_;
    double peak_;     ///< FLOP/s of the products' precision
    double peak_16_;  ///< FLOP/s of attention (16-bit, or the precision itself for fp32)
    double efficiency_;
    double element_bytes_;
    double memory_bandwidth_;
};

}  // namespace mgplan::simulator
