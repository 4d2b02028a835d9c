#pragma once
// Scales from the largest magnitudes of the steps before (delayed scaling: Transformer Engine,
// transformer_engine/common/recipe/delayed_scaling.cu, amax_and_scale_update, with amax_compute_algo "max").

#include <cstdint>
#include <span>

#include "model/ops/fp8.hpp"

namespace mgplan::model {

/// Number of steps whose largest magnitudes give a scale (Transformer Engine, common/recipe/__init__.py, DelayedScaling.amax_history_len).
inline constexpr std::int64_t kFp8HistoryLength = 1024;

/// largest (1) fp32 = the larger of it and the largest magnitude of x. NaNs are no magnitudes.
void raise_largest(const Tensor& x, const Tensor& largest);

/// An array, and the place of its largest magnitude.
struct RaisedLargest {
    Tensor x, largest;
};
/// The same of each, all of one type and device, in a few kernels. Several may raise one place.
void raise_all_largest(std::span<const RaisedLargest> all);
/// The same without the old value: for arrays that are not empty, each with a place of its own.
void find_all_largest(std::span<const RaisedLargest> all);

/// For each of n tensors: puts now (n), unless it is 0, as the latest into history (n, kFp8HistoryLength + 1), a ring whose last element is
/// the place of the next one; writes the largest there into scales (n, 2)[0], for quantise() to cast by, unless it is 0 or infinite; now
/// becomes 0. An infinite one keeps the scale for as long as it is in the window, as Transformer Engine's does (kernel_bulk there). The
/// history has magnitudes in units of `unit`. All fp32.
void follow_largest(const Tensor& now, const Tensor& history, const Tensor& scales, double unit);

}  // namespace mgplan::model
