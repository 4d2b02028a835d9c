#pragma once
// Seconds of the kinds of kernel a layer is made of, and their sums.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/megatron_switches.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// What a kernel bound by memory does: not every access pattern reaches the bandwidth of a plain stream.
enum class Traffic : std::uint8_t { streaming, softmax, permutation, cross_entropy };

/// Rates of one GPU at one precision.
class KernelTimes {
public:
    /// `gradient_bytes`: of an element of the buffer that weight gradients are added into. `format`: of operands in fp8.
    KernelTimes(const ClusterSpec& cluster, const Calibration& calibration, Precision precision, std::int64_t gradient_bytes = 4,
                QuantisedFormat format = QuantisedFormat::tensorwise);

    /// C (m, n) = A (m, k) · B (k, n), `count` such products one after the other in one kernel.
    [[nodiscard]] double gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) const;
    /// G (m, n) += A (m, k) · B (k, n): the gradient buffer is read and written besides.
    [[nodiscard]] double weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k) const;
    /// `count` products of equal shape in a grouped kernel: experts of m rows each.
    [[nodiscard]] double grouped_gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    /// The weight gradients (m, n) of `count` experts of k rows each.
    [[nodiscard]] double grouped_weight_gradient(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    /// Products of `flops` in all that wait for nothing but arithmetic.
    [[nodiscard]] double products(double flops) const;
    /// Fused attention of `flops` (the causal half) whose longest rows see `keys` keys of width `head_dim`.
    [[nodiscard]] double attention_forward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    [[nodiscard]] double attention_backward(double flops, std::int64_t keys, std::int64_t head_dim) const;
    /// A kernel that issues `clocks` of work on one multiprocessor in all, spread over those that there are.
    [[nodiscard]] double multiprocessor_clocks(double clocks) const;
    /// A kernel that reads and writes `bytes` in all.
    [[nodiscard]] double memory_bound(double bytes, Traffic traffic = Traffic::streaming) const;
    /// Bytes of an element of an activation; under fp8 they have 16 bits.
    [[nodiscard]] double element_bytes() const { return element_bytes_; }

private:
    [[nodiscard]] double gemm_rate(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const;
    [[nodiscard]] double accumulating(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, double rate) const;

    const Calibration& calibration_;
    double clock_;    ///< of a multiprocessor, Hz
    double peak_;     ///< FLOP/s of the products' precision
    double peak_16_;  ///< FLOP/s of attention (16-bit, or the precision itself for fp32)
    double efficiency_;
    double k_half_;  ///< calibrated for 16 bits; what a tile takes beside its main loop does not get shorter where that runs faster
    double element_bytes_;
    double gradient_bytes_;
    double memory_bandwidth_;  ///< of plain streams
    double gemm_bandwidth_;    ///< of products that wait for memory
};

}  // namespace mgplan::simulator
