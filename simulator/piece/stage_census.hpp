#pragma once
// Layer counts of each chunk of a stage split, by kind of layer.

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"

namespace mgplan::simulator {

struct ChunkCensus {
    std::vector<std::int32_t> kinds;      ///< decoder layers by index of their kind; empty: none
    std::int64_t dense = 0, mixture = 0;  ///< number of layers without experts, and with them, over all kinds
    std::int64_t first_mixture = 0;       ///< number of MoE layers of the model before this chunk
    /// Number of layers of one kind directly followed by one of another, or of the same, in this chunk.
    struct Neighbours {
        std::uint16_t kind = 0, next = 0;
        std::int32_t count = 0;
    };
    std::vector<Neighbours> neighbours;
    std::int64_t mtp = 0;
    bool embedding = false;
    bool loss = false;
    [[nodiscard]] std::int64_t layers() const { return dense + mixture; }
    /// Adds another chunk's layers and ends; does not update the counts of neighbours.
    ChunkCensus& operator+=(const ChunkCensus& other);
};

/// Counts of one split; index = pp_rank * vpp + vpp_rank.
struct SplitCensus {
    std::shared_ptr<const StageSplit> split;  ///< keeps the key of the memo alive
    std::vector<ChunkCensus> chunks;
    std::vector<ChunkCensus> stages;  ///< sum over the chunks of one pp rank; index = pp_rank
    /// By pp rank: the first rank with equal layer counts in each chunk and equal ends. Both take the same time.
    std::vector<int> alike;
    std::vector<ChunkCensus> single;  ///< by kind: a chunk of one such layer and no ends
};

[[nodiscard]] ChunkCensus census_of(const LayerKinds& kinds, const StageChunk& chunk);
[[nodiscard]] SplitCensus take_census(const LayerKinds& kinds, const std::shared_ptr<const StageSplit>& split);

}  // namespace mgplan::simulator
