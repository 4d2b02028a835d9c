#include "simulator/piece_parameters.hpp"

namespace mgplan::simulator {

PieceParameters piece_parameters(const ModelSpec& model, const LayerKinds& kinds, const ParallelSizes& sizes) {
    PieceParameters counts;
    for (const std::int64_t layer : kinds.first_layer) counts.layers.push_back(decoder_layer_parameter_count(model, layer, sizes));
    for (const LayerKindHalves& kind : kinds.kinds) counts.layers_in_bf16.push_back(kind.in_bf16);
    if (model.mtp_layers > 0) counts.mtp = mtp_layer_parameter_count(model, sizes.tp, sizes.ep, sizes.etp);
    counts.embedding = embedding_parameter_count(model, sizes.tp);
    counts.head = head_parameter_count(model, sizes.tp, false);
    counts.head_with_copy = head_parameter_count(model, sizes.tp, true);
    return counts;
}

}  // namespace mgplan::simulator
