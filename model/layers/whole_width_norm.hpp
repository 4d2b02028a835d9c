#pragma once
// A norm over columns that are divided over tp: over all heads of queries or keys at once (OLMo 2), or of lightning attention's output.

#include "model/layers/context.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Each rank gathers the rows' parts and the weights, computes all, and keeps its own. Context and weights outlive it.
class WholeWidthNorm {
public:
    WholeWidthNorm(const RankContext& context, Normalization kind, double epsilon, const Weight& weight, const Weight& bias)
        : context_(context), kind_(kind), epsilon_(epsilon), weight_(weight), bias_(bias) {}

    /// part (rows, width / tp); the statistics are those of whole rows.
    [[nodiscard]] Tensor forward(const Tensor& part, NormStatistics& statistics) const;
    /// `part` as the forward saw it. Adds to the main gradients.
    [[nodiscard]] Tensor backward(const Tensor& dy, const Tensor& part, const NormStatistics& statistics) const;

private:
    [[nodiscard]] Tensor whole(const Weight& weight) const;
    [[nodiscard]] Tensor whole_gradient(const Weight& weight) const;
    void add_own(const Tensor& gradient, const Weight& weight) const;

    const RankContext& context_;
    Normalization kind_;
    double epsilon_;
    const Weight &weight_, &bias_;
};

}  // namespace mgplan::model
