#include "model/layers/residual.hpp"

#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"

namespace mgplan::model {
namespace {

DropoutPlace place_of(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                      ResidualPlace place) {
    DropoutPlace where;
    where.probability = model.hidden_dropout;
    where.seed = microbatch.dropout_seed;
    where.stream = static_cast<std::uint64_t>(layer) * 4 + static_cast<std::uint64_t>(place);
    where.positions = positions_of(context, microbatch);
    where.first_row = context.sequence_parallel ? where.positions.rows() / context.tp->size() * context.tp->rank() : 0;
    where.first_sequence = microbatch.first_sequence;
    where.changing = microbatch.changing;
    return where;
}

/// Factors of what a half adds, and of the path that it is added to.
PathFactors factors_of(const ModelSpec& model, ResidualPlace place) {
    if (place == ResidualPlace::embedding) return {};
    if (!model.normed_residual) return {.path = 1, .branch = model.residual_multiplier};
    const NormedResidual& factors = *model.normed_residual;
    PathFactors own = place == ResidualPlace::mlp ? factors.mlp : factors.attention;
    own.branch *= model.residual_multiplier;
    return own;
}

/// Returns true if the layer adds a half's output to streams (ResidualStreams), so that it is not added here.
bool mixed_as_streams(const ModelSpec& model, ResidualPlace place) {
    return model.hyper_connections && place != ResidualPlace::embedding;
}

bool input_has_path(const ModelSpec& model) {
    return !model.normed_residual && !model.hyper_connections;
}

Tensor scaled_copy(const Tensor& x, double factor) {
    Tensor y = x.device().empty(x.shape(), x.dtype(), MemoryCategory::activations, "scaled gradient");
    copy(x, y);
    scale(y, factor);
    return y;
}

}  // namespace

const Tensor& residual_path(const ModelSpec& model, const Tensor& x, const Tensor& normed) {
    return model.normed_residual ? normed : x;
}

Tensor add_residual(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                    ResidualPlace place, const Tensor& x, const Tensor& residual) {
    if (mixed_as_streams(model, place)) return x;
    const PathFactors factors = factors_of(model, place);
    // The path's tensor is also used elsewhere, so it is not scaled: the sum takes its factor.
    if (factors.branch != factors.path) scale(x, factors.branch / factors.path);
    Tensor sum = dropout_add(x, residual, place_of(context, microbatch, model, layer, place));
    if (factors.path != 1) scale(sum, factors.path);
    return sum;
}

Tensor residual_backward(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                         ResidualPlace place, const Tensor& dy) {
    if (mixed_as_streams(model, place)) return dy;
    const double factor = factors_of(model, place).branch;
    if (model.hidden_dropout == 0) return factor == 1 ? dy : scaled_copy(dy, factor);
    Tensor dx = dropout_backward(dy, place_of(context, microbatch, model, layer, place));
    if (factor != 1) scale(dx, factor);
    return dx;
}

void add_path_to_normed(const ModelSpec& model, ResidualPlace place, const Tensor& dy, const Tensor& d_normed) {
    if (!model.normed_residual) return;
    const double factor = factors_of(model, place).path;
    add(factor == 1 ? dy : scaled_copy(dy, factor), d_normed);
}

void add_path_to_input(const ModelSpec& model, const Tensor& dy, const Tensor& dx) {
    if (input_has_path(model)) add(dy, dx);
}

Tensor path_in_norm(const RankContext& context, const ModelSpec& model, const Tensor& dy) {
    return context.adds_path_in_norms && model.pre_norms && input_has_path(model) ? dy : Tensor();
}

}  // namespace mgplan::model
