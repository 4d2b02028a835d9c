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

}  // namespace

Tensor add_residual(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                    ResidualPlace place, const Tensor& x, const Tensor& residual) {
    if (model.residual_multiplier != 1 && place != ResidualPlace::embedding) scale(x, model.residual_multiplier);
    return dropout_add(x, residual, place_of(context, microbatch, model, layer, place));
}

Tensor residual_backward(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                         ResidualPlace place, const Tensor& dy) {
    const bool scaled = model.residual_multiplier != 1 && place != ResidualPlace::embedding;
    if (model.hidden_dropout == 0 && !scaled) return dy;
    Tensor dx;
    if (model.hidden_dropout != 0) {
        dx = dropout_backward(dy, place_of(context, microbatch, model, layer, place));
    } else {
        dx = context.device->empty(dy.shape(), dy.dtype(), MemoryCategory::activations, "scaled gradient");
        copy(dy, dx);
    }
    if (scaled) scale(dx, model.residual_multiplier);
    return dx;
}

}  // namespace mgplan::model
