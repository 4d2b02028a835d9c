#include "simulator/piece_parameters.hpp"

namespace mgplan::simulator {

PieceParameters piece_parameters(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    PieceParameters counts;
    counts.dense = layer_parameter_count(model, LayerKind::dense, tp, ep, etp);
    if (model.moe) counts.mixture = layer_parameter_count(model, LayerKind::moe, tp, ep, etp);
    if (model.mtp_layers > 0) counts.mtp = mtp_layer_parameter_count(model, tp, ep, etp);
    counts.embedding = embedding_parameter_count(model, tp);
    counts.head = head_parameter_count(model, tp, false);
    counts.head_with_copy = head_parameter_count(model, tp, true);
    return counts;
}

}  // namespace mgplan::simulator
