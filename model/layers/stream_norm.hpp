#pragma once
// A norm over the hidden size before a branch of a layer or after it, which the model may not have.

#include "model/layers/context.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves; none without a norm.
struct StreamNormSaved {
    Tensor x;
    NormStatistics statistics;
};

/// x (rows, hidden) outside the tp region. Without a weight it returns its input.
class StreamNorm {
public:
    StreamNorm() = default;
    /// `stem`: of the names of its weight and bias, "decoder.layers.0.post_mlp_layernorm."
    StreamNorm(const LayerSite& site, const std::string& stem)
        : kind_(site.layer.norms.norm.kind), weight_(site.weights.find(stem + "weight")), bias_(site.weights.find(stem + "bias")) {}

    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, StreamNormSaved& saved) const;
    /// Computes a forward's result again, for a backward whose forward did not save it; there must be a norm.
    [[nodiscard]] Tensor again(const RankContext& context, const StreamNormSaved& saved) const;
    /// Returns the gradient of x, and `added` added to it, where that is defined; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const Tensor& dy, StreamNormSaved& saved, const Tensor& added = {}) const;

private:
    Normalization kind_ = Normalization::rms_norm;
    Weight weight_, bias_;
};

}  // namespace mgplan::model
