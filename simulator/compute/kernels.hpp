#pragma once
// Seconds of the kinds of kernels that layers run, and their sums.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/megatron_switches.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Access pattern of a memory-bound kernel: only streaming reaches the full calibrated bandwidth.
enum class Traffic : std::uint8_t { streaming, softmax, permutation, cross_entropy };

/// Rates of one GPU at one precision.
class KernelTimes {
public:
    /// `gradient_bytes`: size of an element of the weight-gradient buffer. `format`: of fp8 operands.
    KernelTimes(const ClusterSpec& cluster, const Calibration& calibration, Precision precision, std::int64_t gradient_bytes = 4,
                QuantisedFormat format = QuantisedFormat::tensorwise);

    /// C (m, n) = A (m, k) · B (k, n); `count` such GEMMs in sequence in one kernel.
    [[nodiscard]] double gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) const;
    /// G (m, n) += A (m, k) · B (k, n): also reads and writes the gradient buffer.
    [[nodiscard]] double weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k) const;
    /// A grouped kernel of `count` GEMMs of equal shape: experts of m rows each.
    [[nodiscard]] double grouped_gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    /// The weight gradients (m, n) of `count` experts of k rows each.
    [[nodiscard]] double grouped_weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    /// Purely compute-bound GEMMs of `flops` in total.
    [[nodiscard]] double products(double flops) const;
    /// Recurrence by chunks in Triton kernels, or its backward.
    [[nodiscard]] double scan(double flops, bool backward) const;
    /// Fused attention of `flops` (the causal half), whose longest rows see `keys` keys of width `head_dim`.
    [[nodiscard]] double attention_forward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    [[nodiscard]] double attention_backward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    /// A kernel with `clocks` of work for a single multiprocessor, spread over all multiprocessors.
    [[nodiscard]] double multiprocessor_clocks(double clocks) const;
    /// A kernel that reads and writes `bytes` in total.
    [[nodiscard]] double memory_bound(double bytes, Traffic traffic = Traffic::streaming) const;
    /// Bytes of an activation element; 2 under fp8.
    [[nodiscard]] double element_bytes() const { return element_bytes_; }

private:
    [[nodiscard]] double gemm_rate(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    [[nodiscard]] double accumulating(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, double rate) const;

    const Calibration& calibration_;
    double clock_;    ///< clock rate of a multiprocessor, Hz
    double peak_;     ///< FLOP/s of the GEMMs' precision
    double peak_16_;  ///< FLOP/s of attention (16-bit, or the precision itself for fp32)
    double efficiency_;
    double k_half_;  ///< scaled with the peak: the time of a tile outside its main loop does not shrink when the loop runs faster
    double element_bytes_;
    double gradient_bytes_;
    double memory_bandwidth_;  ///< reached by streaming kernels
    double gemm_bandwidth_;    ///< reached by memory-bound GEMMs
};

}  // namespace mgplan::simulator
