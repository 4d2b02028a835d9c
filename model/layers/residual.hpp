#pragma once
// Adds a half layer's output to the residual stream, with dropout where the model has it.

#include "model/layers/context.hpp"
#include "model/ops/dropout.hpp"

namespace mgplan::model {

/// Place of a dropout in the model: each draws from a stream of its own.
enum class ResidualPlace : std::uint8_t { embedding, attention, mlp };

/// The residual path around one half of a layer, or the dropout of embeddings.
class ResidualPath {
public:
    /// `number`: of the layer, for dropout; `norm_before`: the half begins with a norm.
    ResidualPath(const Residual& residual, bool norm_before, std::int64_t number, ResidualPlace place);
    ResidualPath(const LayerSite& site, ResidualPlace place)
        : ResidualPath(site.layer.residual, site.layer.norms.before, site.number, place) {}

    /// The tensor on the path: the half's input x, or with Residual::normed_path the output of its norm.
    [[nodiscard]] bool carries_normed() const { return residual_.normed_path.has_value(); }
    [[nodiscard]] const Tensor& carried(const Tensor& x, const Tensor& normed) const { return carries_normed() ? normed : x; }
    /// Returns path + dropout(x), each with its factor where the model has some. x and path outside the tp region; x may be overwritten.
    /// With hyper-connections x and gradients stay unchanged: streams are mixed around the half.
    [[nodiscard]] Tensor sum(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& path) const;
    /// Gradient of x; dy itself without dropout and factors.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy) const;

    /// Add the path's part of a half's gradient to that of its norm's output, or of its input: of the tensor on the path.
    void add_to_normed(const Tensor& dy, const Tensor& d_normed) const;
    void add_to_input(const Tensor& dy, const Tensor& dx) const;
    /// Returns the tensor that norm_backward() of the half's norm adds in place of add_to_input(): dy, or undefined if that is still to be
    /// called.
    [[nodiscard]] Tensor in_norm(const RankContext& context, const Tensor& dy) const;

private:
    [[nodiscard]] bool input_has_path() const { return !residual_.normed_path && !residual_.hyper_connections; }
    [[nodiscard]] DropoutPlace dropout_place(const RankContext& context, const MicrobatchContext& microbatch) const;

    Residual residual_;
    PathFactors factors_;
    bool norm_before_;
    std::int64_t number_;
    ResidualPlace place_;
};

}  // namespace mgplan::model
