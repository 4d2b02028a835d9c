#pragma once
// The scan of Mamba (arXiv 2312.00752, algorithm 2): each channel has a state of its own, each value of which decays by its own rate, from
// place to place, with steps that follow from the input. Implemented for shapes alone: no device here computes it
// (layers_known_of_shapes()).

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Operations for each row, channel and value of a state: the forward as Mamba's authors count them (github.com/state-spaces/mamba, issue
/// 110), the backward as its kernel has them (csrc/selective_scan/selective_scan_bwd_kernel.cuh, real values, varying B and C): states and
/// their gradients by a scan each way, and the products of six gradients.
inline constexpr double kSelectiveScanFlops = 9, kSelectiveScanBackwardFlops = 27;
/// Instructions besides one exponential that mamba_ssm's kernels have for each of them: 2 before the scan, 4 in it, 2 after; in the
/// backward 4, two scans, 10 and 4 that add B's and C's gradients to the sums of all channels. Counted, not measured.
inline constexpr double kSelectiveScanInstructions = 8, kSelectiveScanBackwardInstructions = 26;

/// Inputs of a scan. Rows are places of the sequence, of each place the sequences of a microbatch.
struct SelectiveScanInputs {
    Tensor x;            ///< (rows, channels)
    Tensor steps;        ///< raw, (rows, channels)
    Tensor write, read;  ///< B and C: (rows, state), of all channels
    Tensor gates;        ///< z: columns [gate_begin, gate_begin + channels) of (rows, any)
    std::int64_t gate_begin = 0;
    Tensor step_bias;        ///< dt_proj.bias (channels)
    Tensor log_decay;        ///< A_log (channels, state)
    Tensor skip;             ///< D (channels)
    std::int64_t batch = 1;  ///< sequences

    [[nodiscard]] std::int64_t rows() const { return x.shape()[0]; }
    [[nodiscard]] std::int64_t channels() const { return x.shape()[1]; }
    [[nodiscard]] std::int64_t state() const { return write.shape()[1]; }
};

/// Output of mamba_ssm's SelectiveScanFn, and the tensors that it saves besides its inputs.
struct SelectiveScanResult {
    Tensor scanned;  ///< y in front of the gate: (rows, channels)
    Tensor states;   ///< fp32, where every 2,048 places end: (sequences, channels, pieces, 2 · state)
    Tensor gated;    ///< y · silu(z): (rows, channels)
};

/// With dt = softplus(step + step_bias) and A = -exp(log_decay): h_t = exp(dt A) h_(t-1) + dt B_t x_t, y_t = C_t · h_t + skip · x_t.
[[nodiscard]] SelectiveScanResult selective_scan(const SelectiveScanInputs& inputs);

/// Gradients of the inputs; those of B and C are the sums over this rank's channels.
struct SelectiveScanGradients {
    Tensor x, steps, write, read;
};
/// Writes the gradient of z to the same columns of d_gates, which has the shape of gates; adds to those of the weights, which may be fp32.
[[nodiscard]] SelectiveScanGradients selective_scan_backward(const Tensor& dy, const SelectiveScanInputs& inputs,
                                                             const SelectiveScanResult& result, const Tensor& d_gates,
                                                             const Tensor& d_step_bias, const Tensor& d_log_decay, const Tensor& d_skip);

}  // namespace mgplan::model
