#include "simulator/piece/stage_census.hpp"

#include <algorithm>

namespace mgplan::simulator {
namespace {

bool takes_as_long(const ChunkCensus& a, const ChunkCensus& b) {
    return a.kinds == b.kinds && a.mtp == b.mtp && a.embedding == b.embedding && a.loss == b.loss;
}

void count_neighbours(std::vector<ChunkCensus::Neighbours>& all, std::size_t kind, std::size_t next) {
    auto found = std::find_if(all.begin(), all.end(), [&](const auto& pair) { return pair.kind == kind && pair.next == next; });
    if (found == all.end()) found = all.insert(found, {static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(next), 0});
    ++found->count;
}

}  // namespace

ChunkCensus& ChunkCensus::operator+=(const ChunkCensus& other) {
    if (kinds.size() < other.kinds.size()) kinds.resize(other.kinds.size());
    for (std::size_t kind = 0; kind < other.kinds.size(); ++kind) kinds[kind] += other.kinds[kind];
    dense += other.dense;
    mixture += other.mixture;
    mtp += other.mtp;
    embedding |= other.embedding;
    loss |= other.loss;
    return *this;
}

ChunkCensus census_of(const LayerKinds& kinds, const StageChunk& chunk) {
    ChunkCensus counts;
    counts.kinds.resize(kinds.size());
    const auto kind_of = [&](std::int64_t layer) { return static_cast<std::size_t>(kinds.of_layer[static_cast<std::size_t>(layer)]); };
    for (std::int64_t layer = 0; layer < chunk.first_decoder; ++layer) counts.first_mixture += kinds.kinds[kind_of(layer)].mixture ? 1 : 0;
    for (std::int64_t i = 0; i < chunk.decoders; ++i) {
        const std::size_t kind = kind_of(chunk.first_decoder + i);
        ++(kinds.kinds[kind].mixture ? counts.mixture : counts.dense);
        ++counts.kinds[kind];
        if (i > 0) count_neighbours(counts.neighbours, kinds.of_layer[static_cast<std::size_t>(chunk.first_decoder + i - 1)], kind);
    }
    counts.mtp = chunk.mtp;
    counts.embedding = chunk.embedding;
    counts.loss = chunk.loss;
    return counts;
}

SplitCensus take_census(const LayerKinds& kinds, const std::shared_ptr<const StageSplit>& split) {
    SplitCensus census;
    census.split = split;
    for (int pp_rank = 0; pp_rank < split->pp(); ++pp_rank) {
        ChunkCensus stage;
        for (int vpp_rank = 0; vpp_rank < split->vpp(); ++vpp_rank) {
            census.chunks.push_back(census_of(kinds, split->chunk(pp_rank, vpp_rank)));
            stage += census.chunks.back();
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
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        ChunkCensus one;
        one.kinds.resize(kinds.size());
        one.kinds[kind] = 1;
        (kinds.kinds[kind].mixture ? one.mixture : one.dense) = 1;
        census.single.push_back(std::move(one));
    }
    return census;
}

}  // namespace mgplan::simulator
