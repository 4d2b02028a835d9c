#include "simulator/stage_census.hpp"

#include <algorithm>

namespace mgplan::simulator {

SplitCensus take_census(const ModelSpec& model, const std::shared_ptr<const StageSplit>& split) {
    SplitCensus census{split, {}, {}};
    for (int pp_rank = 0; pp_rank < split->pp(); ++pp_rank) {
        ChunkCensus stage;
        for (int vpp_rank = 0; vpp_rank < split->vpp(); ++vpp_rank) {
            const StageChunk& chunk = split->chunk(pp_rank, vpp_rank);
            ChunkCensus counts;
            if (model.moe)
                counts.first_mixture = std::count(model.moe_layers.begin(), model.moe_layers.begin() + chunk.first_decoder, true);
            for (std::int64_t i = 0; i < chunk.decoders; ++i) {
                if (model.moe && model.is_moe_layer(chunk.first_decoder + i))
                    ++counts.mixture;
                else
                    ++counts.dense;
            }
            counts.mtp = chunk.mtp;
            counts.embedding = chunk.embedding;
            counts.loss = chunk.loss;
            stage.dense += counts.dense;
            stage.mixture += counts.mixture;
            stage.mtp += counts.mtp;
            stage.embedding |= counts.embedding;
            stage.loss |= counts.loss;
            census.chunks.push_back(counts);
        }
        census.stages.push_back(stage);
    }
    return census;
}

}  // namespace mgplan::simulator
