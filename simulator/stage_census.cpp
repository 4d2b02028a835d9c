#include "simulator/stage_census.hpp"

#include <algorithm>

namespace mgplan::simulator {
namespace {

bool takes_as_long(const ChunkCensus& a, const ChunkCensus& b) {
    return a.dense == b.dense && a.mixture == b.mixture && a.windowed_dense == b.windowed_dense &&
           a.windowed_mixture == b.windowed_mixture && a.mtp == b.mtp && a.embedding == b.embedding && a.loss == b.loss;
}

}  // namespace

ChunkCensus census_of(const ModelSpec& model, const StageChunk& chunk) {
    ChunkCensus counts;
    if (model.moe) counts.first_mixture = std::count(model.moe_layers.begin(), model.moe_layers.begin() + chunk.first_decoder, true);
    for (std::int64_t i = 0; i < chunk.decoders; ++i) {
        const std::int64_t layer = chunk.first_decoder + i;
        const bool mixture = model.moe && model.is_moe_layer(layer);
        if (i > 0 && mixture != counts.ends_with_mixture) ++(mixture ? counts.dense_then_mixture : counts.mixture_then_dense);
        ++(mixture ? counts.mixture : counts.dense);
        if (model.window_of_layer(layer) > 0) ++(mixture ? counts.windowed_mixture : counts.windowed_dense);
        counts.ends_with_mixture = mixture;
    }
    counts.mtp = chunk.mtp;
    counts.embedding = chunk.embedding;
    counts.loss = chunk.loss;
    return counts;
}

SplitCensus take_census(const ModelSpec& model, const std::shared_ptr<const StageSplit>& split) {
    SplitCensus census;
    census.split = split;
    for (int pp_rank = 0; pp_rank < split->pp(); ++pp_rank) {
        ChunkCensus stage;
        for (int vpp_rank = 0; vpp_rank < split->vpp(); ++vpp_rank) {
            const ChunkCensus counts = census_of(model, split->chunk(pp_rank, vpp_rank));
            stage.dense += counts.dense;
            stage.mixture += counts.mixture;
            stage.windowed_dense += counts.windowed_dense;
            stage.windowed_mixture += counts.windowed_mixture;
            stage.mtp += counts.mtp;
            stage.embedding |= counts.embedding;
            stage.loss |= counts.loss;
            census.chunks.push_back(counts);
        }
        census.stages.push_back(stage);
    }
    const auto vpp = static_cast<std::ptrdiff_t>(split->vpp());
    for (int rank = 0; rank < split->pp(); ++rank) {
        const auto own = census.chunks.begin() + rank * vpp;
        int like = 0;
        while (!std::equal(own, own + vpp, census.chunks.begin() + like * vpp, takes_as_long)) ++like;
        census.alike.push_back(like);
    }
    return census;
}

}  // namespace mgplan::simulator
