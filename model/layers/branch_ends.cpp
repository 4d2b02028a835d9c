#include "model/layers/branch_ends.hpp"

#include "model/layers/residual.hpp"

namespace mgplan::model {

BranchEnds::BranchEnds(const ModelSpec& model, const WeightTable& weights, const std::string& linear, std::int64_t layer,
                       EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      norm_(model, weights.find(linear + ".layer_norm_weight"), weights.find(linear + ".layer_norm_bias")) {}

const Tensor& BranchEnds::enter(const RankContext& context, const Tensor& x, BranchEndsSaved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    return saved.normed;
}

Tensor BranchEnds::leave(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& y, const Tensor& x,
                         BranchEndsSaved& saved) const {
    const Tensor path = residual_path(model_, x, saved.normed);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, path);
}

Tensor BranchEnds::backward_into(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                 BranchEndsSaved& saved) const {
    if (!saved.normed.defined()) saved.normed = norm_.again(context, saved.norm);
    return residual_backward(context, microbatch, model_, layer_, ResidualPlace::attention, dy);
}

Tensor BranchEnds::backward_out(const RankContext& context, const Tensor& dy, Tensor d_normed, BranchEndsSaved& saved) const {
    saved.normed = {};
    add_path_to_normed(model_, ResidualPlace::attention, dy, d_normed);
    const Tensor path = path_in_norm(context, model_, dy);
    Tensor dx = norm_.backward(d_normed, saved.norm, path);
    d_normed = {};
    if (!path.defined()) add_path_to_input(model_, dy, dx);
    return dx;
}

}  // namespace mgplan::model
