#include "model/layers/residual.hpp"

#include "model/ops/dropout.hpp"

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
    return dropout_add(x, residual, place_of(context, microbatch, model, layer, place));
}

Tensor residual_backward(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model, std::int64_t layer,
                         ResidualPlace place, const Tensor& dy) {
    if (model.hidden_dropout == 0) return dy;
    return dropout_backward(dy, place_of(context, microbatch, model, layer, place));
}

}  // namespace mgplan::model
