#include "model/layers/residual.hpp"

#include "model/ops/elementwise.hpp"

namespace mgplan::model {
namespace {

/// Factors of what a half adds, and of the path that it is added to.
PathFactors factors_of(const Residual& residual, ResidualPlace place) {
    if (!residual.normed_path) return {.path = 1, .branch = residual.multiplier};
    PathFactors own = place == ResidualPlace::mlp ? residual.normed_path->feed_forward : residual.normed_path->mixer;
    own.branch *= residual.multiplier;
    return own;
}

Tensor scaled_copy(const Tensor& x, double factor) {
    Tensor y = x.device().empty(x.shape(), x.dtype(), MemoryCategory::activations, "scaled gradient");
    copy(x, y);
    scale(y, factor);
    return y;
}

}  // namespace

ResidualPath::ResidualPath(const Residual& residual, bool norm_before, std::int64_t number, ResidualPlace place)
    : residual_(residual), factors_(factors_of(residual, place)), norm_before_(norm_before), number_(number), place_(place) {}

DropoutPlace ResidualPath::dropout_place(const RankContext& context, const MicrobatchContext& microbatch) const {
    DropoutPlace where;
    where.probability = residual_.dropout;
    where.seed = microbatch.dropout_seed;
    where.stream = static_cast<std::uint64_t>(number_) * 4 + static_cast<std::uint64_t>(place_);
    where.positions = positions_of(context, microbatch);
    where.first_row = context.sequence_parallel ? where.positions.rows() / context.tp->size() * context.tp->rank() : 0;
    where.first_sequence = microbatch.first_sequence;
    where.changing = microbatch.changing;
    return where;
}

Tensor ResidualPath::sum(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& path) const {
    if (residual_.hyper_connections) return x;
    // The path's tensor is also used elsewhere, so it is not scaled: the sum takes its factor.
    if (factors_.branch != factors_.path) scale(x, factors_.branch / factors_.path);
    Tensor sum = dropout_add(x, path, dropout_place(context, microbatch));
    if (factors_.path != 1) scale(sum, factors_.path);
    return sum;
}

Tensor ResidualPath::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy) const {
    if (residual_.hyper_connections) return dy;
    if (residual_.dropout == 0) return factors_.branch == 1 ? dy : scaled_copy(dy, factors_.branch);
    Tensor dx = dropout_backward(dy, dropout_place(context, microbatch));
    if (factors_.branch != 1) scale(dx, factors_.branch);
    return dx;
}

void ResidualPath::add_to_normed(const Tensor& dy, const Tensor& d_normed) const {
    if (residual_.normed_path) add(factors_.path == 1 ? dy : scaled_copy(dy, factors_.path), d_normed);
}

void ResidualPath::add_to_input(const Tensor& dy, const Tensor& dx) const {
    if (input_has_path()) add(dy, dx);
}

Tensor ResidualPath::in_norm(const RankContext& context, const Tensor& dy) const {
    return context.adds_path_in_norms && norm_before_ && input_has_path() ? dy : Tensor();
}

}  // namespace mgplan::model
