#pragma once
// The order in which Megatron-LM's distributed optimizer lists what a rank owns of each parameter group, for tests that hold the
// layout of buffers against its dumps.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::tests {

using model::BucketId;
using model::BufferLayout;
using model::BufferLayouts;
using model::ShardRange;

/// Dense with and without weight decay, experts with and without: four groups, empty ones too, so that all ranks agree on them
/// (core/optimizer/__init__.py _get_param_groups; one optimizer for dense parameters, one for experts).
[[nodiscard]] inline std::size_t group_of(const Parameter& parameter) {
    return (parameter.expert ? 2U : 0U) + (parameter.no_weight_decay ? 1U : 0U);
}

/// A piece of a parameter in a rank's shard.
struct OwnedPiece {
    std::int32_t chunk = 0;
    BucketId bucket;
    ShardRange range;
};

/// The pieces that a data-parallel rank owns of each of the four groups, in the order of its shards: by chunk, buffer,
/// bucket and position, so the last parameters of a chunk come first (core/optimizer/distrib_optimizer.py
/// _build_optimizer_group_ranges). `layouts[c]` is the distributed optimizer's layout of chunks[c].
[[nodiscard]] inline std::vector<std::vector<OwnedPiece>> owned_pieces(std::span<const std::vector<Parameter>> chunks,
                                                                       std::span<const BufferLayouts> layouts, std::int64_t dp_rank,
                                                                       std::int64_t expert_dp_rank) {
    MGPLAN_ASSERT(chunks.size() == layouts.size(), "one layout for each chunk");
    std::vector<std::vector<OwnedPiece>> groups(4);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        for (std::size_t b = 0; b < layouts[c].buffers.size(); ++b) {
            const BufferLayout& buffer = layouts[c].buffers[b];
            for (std::size_t k = 0; k < buffer.buckets.size(); ++k) {
                for (const ShardRange& range : shard_ranges(buffer, k, buffer.expert ? expert_dp_rank : dp_rank)) {
                    const Parameter& parameter = chunks[c][static_cast<std::size_t>(range.parameter)];
                    groups[group_of(parameter)].push_back(
                        {static_cast<std::int32_t>(c), {static_cast<std::int32_t>(b), static_cast<std::int32_t>(k)}, range});
                }
            }
        }
    }
    return groups;
}

}  // namespace mgplan::tests
