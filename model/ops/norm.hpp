#pragma once
// LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467) over the last dimension.

#include "model/device/tensor.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

/// Statistics one row each, fp32 (fp64 for fp64 inputs), kept for the backward.
struct NormStatistics {
    Tensor mean;  ///< LayerNorm alone
    Tensor inverse_deviation;
};

/// y = (x - mean) · inverse_deviation · weight + bias; RMSNorm without mean and bias. bias may be undefined, and with it the weight, which
/// is then 1.
[[nodiscard]] Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Normalization kind, double epsilon,
                          NormStatistics& statistics);

/// The work of norm() once more on rows like y's, without its result: for norms of several layers that are recomputed together.
/// Implemented for shapes alone, as are the streams that need it (model/ops/stream_mixing.hpp).
void repeat_norm(const Tensor& y, const Tensor& weight, const Tensor& bias, Normalization kind);

/// Returns dx; adds to weight_gradient and bias_gradient (where defined), which may be fp32. `added`, of x's type and size, is added to
/// dx in the same pass: in 16 bits with the bits of a later add(added, dx), of wider types too except where a GPU rounds product and sum
/// once (a fused multiply-add); undefined: nothing is.
[[nodiscard]] Tensor norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const NormStatistics& statistics,
                                   Normalization kind, const Tensor& weight_gradient, const Tensor& bias_gradient,
                                   const Tensor& added = {});

}  // namespace mgplan::model
