#pragma once
// What each chunk of a stage split holds, counted by kind of layer, and how many microbatches of it are alive at the peak.

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"

namespace mgplan::simulator {

struct ChunkCensus {
    std::vector<std::int32_t> kinds;      ///< decoder layers by index of their kind; empty: none
    std::int64_t dense = 0, mixture = 0;  ///< of all kinds: layers without experts, and with them
    std::int64_t first_mixture = 0;       ///< mixture layers of the model in front of this chunk
    std::int64_t dense_then_mixture = 0;  ///< dense layers with a mixture right behind them in this chunk
    std::int64_t mixture_then_dense = 0;
    bool ends_with_mixture = false;  ///< its last layer, before those of multi-token prediction
    std::int64_t mtp = 0;
    bool embedding = false;
    bool loss = false;
    [[nodiscard]] std::int64_t layers() const { return dense + mixture; }
    /// Adds another chunk's layers and ends; what says how layers follow each other stays as it is.
    ChunkCensus& operator+=(const ChunkCensus& other);
};

/// Counts of one split; index = pp_rank * vpp + vpp_rank.
struct SplitCensus {
    std::shared_ptr<const StageSplit> split;  ///< keeps the key of the memo alive
    std::vector<ChunkCensus> chunks;
    std::vector<ChunkCensus> stages;  ///< chunks of one pp rank added up; index = pp_rank
    /// By pp rank: the first rank whose chunks hold as many layers of each kind and the same ends. It takes as long as this one.
    std::vector<int> alike;
    std::vector<ChunkCensus> single;  ///< by kind: a chunk of one such layer and no ends
};

[[nodiscard]] ChunkCensus census_of(const LayerKinds& kinds, const StageChunk& chunk);
[[nodiscard]] SplitCensus take_census(const LayerKinds& kinds, const std::shared_ptr<const StageSplit>& split);

}  // namespace mgplan::simulator
