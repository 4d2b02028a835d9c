#include "model/layers/stream_norm.hpp"

#include "model/ops/elementwise.hpp"

namespace mgplan::model {

Tensor StreamNorm::forward(const RankContext& context, const Tensor& x, StreamNormSaved& saved) const {
    if (!weight_.defined()) return x;
    saved.x = x;
    return norm(x, weight_.value, bias_.value, kind_, context.norm_epsilon, saved.statistics);
}

Tensor StreamNorm::again(const RankContext& context, const StreamNormSaved& saved) const {
    const Range range(*context.device, "recompute");
    NormStatistics statistics;
    return norm(saved.x, weight_.value, bias_.value, kind_, context.norm_epsilon, statistics);
}

Tensor StreamNorm::backward(const Tensor& dy, StreamNormSaved& saved, const Tensor& added) const {
    if (!weight_.defined()) {
        if (added.defined()) add(added, dy);
        return dy;
    }
    Tensor dx = norm_backward(dy, saved.x, weight_.value, saved.statistics, kind_, weight_.gradient, bias_.gradient, added);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
