#pragma once
// The conjugate operators around a tensor-parallel region (Shoeybi et al., arXiv 1909.08053; with sequence parallelism
// Korthikanti et al., arXiv 2205.05198), and the two linear layers between them.

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Into the region: with sequence parallelism the rows of all tp ranks gathered, else x itself.
[[nodiscard]] Tensor enter_region(const RankContext& context, const Tensor& x);
/// Out of the region: partial sums reduce-scattered by rows with sequence parallelism, else all-reduced in place.
[[nodiscard]] Tensor leave_region(const RankContext& context, const Tensor& partial);

/// y = x Wᵀ + b with the rows of W (out / tp, in) divided over tp. Inputs and outputs: x outside the region (rows / tp
/// with sequence parallelism), y inside.
class ColumnParallelLinear {
public:
    ColumnParallelLinear() = default;
    ColumnParallelLinear(Weight weight, Weight bias) : weight_(std::move(weight)), bias_(std::move(bias)) {}

    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x) const;
    /// `x` as forward saw it; gathered again with sequence parallelism rather than kept. Adds to the main gradients.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const Tensor& x) const;

private:
    Weight weight_, bias_;
};

/// y = x Wᵀ + b with the columns of W (out, in / tp) divided over tp: x inside the region, y outside. The bias is added
/// once, after the reduction.
class RowParallelLinear {
public:
    RowParallelLinear() = default;
    RowParallelLinear(Weight weight, Weight bias) : weight_(std::move(weight)), bias_(std::move(bias)) {}

    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const Tensor& x) const;

private:
    Weight weight_, bias_;
};

}  // namespace mgplan::model
