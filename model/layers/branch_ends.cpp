#include "model/layers/branch_ends.hpp"

namespace mgplan::model {

BranchEnds::BranchEnds(const LayerSite& site, const std::string& linear)
    : residual_(site, ResidualPlace::attention),
      keeps_normed_(!site.recompute.contains(RecomputeModule::layernorm)),
      norm_(site, site.prefix + linear + ".layer_norm_") {}

const Tensor& BranchEnds::enter(const RankContext& context, const Tensor& x, BranchEndsSaved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    return saved.normed;
}

Tensor BranchEnds::leave(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& y, const Tensor& x,
                         BranchEndsSaved& saved, bool reads_normed) const {
    const Tensor path = residual_.carried(x, saved.normed);
    if (!keeps_normed_ || !reads_normed) saved.normed = Tensor();
    return residual_.sum(context, microbatch, y, path);
}

Tensor BranchEnds::backward_into(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, BranchEndsSaved& saved,
                                 bool reads_normed) const {
    if (!saved.normed.defined() && reads_normed) saved.normed = norm_.again(context, saved.norm);
    return residual_.backward(context, microbatch, dy);
}

Tensor BranchEnds::backward_out(const RankContext& context, const Tensor& dy, Tensor d_normed, BranchEndsSaved& saved) const {
    saved.normed = {};
    residual_.add_to_normed(dy, d_normed);
    const Tensor path = residual_.in_norm(context, dy);
    Tensor dx = norm_.backward(d_normed, saved.norm, path);
    d_normed = {};
    if (!path.defined()) residual_.add_to_input(dy, dx);
    return dx;
}

}  // namespace mgplan::model
