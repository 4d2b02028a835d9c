#pragma once
// Computes the factor that clips gradients from the sums of their squares. All values stay on the device, so that nothing waits for the
// host.

#include <cstdint>

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// total (1) = values (n) added up from the first to the last, both fp64; 0 of none.
void add_in_order(const Tensor& values, const Tensor& total);

struct ClipOptions {
    double clip_norm = 1;       ///< the norm above which gradients are scaled down to it; 0: never
    std::int64_t replicas = 1;  ///< how often each gradient counts in `squares`
};

/// All fp64. squares (1), and expert_squares (1) or undefined: sums of squared gradients. outcome (2): squares / replicas + expert_squares,
/// and the factor: 1, or clip_norm / (norm + 1e-6) where the norm, the root of these, is above clip_norm; NaN, with which optimizers move
/// nothing, where they or `guard` (1) are not finite.
void clip_factor(const Tensor& squares, const Tensor& expert_squares, const Tensor& guard, const ClipOptions& options,
                 const Tensor& outcome);

}  // namespace mgplan::model
