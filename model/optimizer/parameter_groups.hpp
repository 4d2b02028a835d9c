#pragma once
// The optimizer's parameter groups and the order in which each lists its parameters: what checkpoints of optimizer state
// are written in.

#include <cstdint>
#include <span>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/parameters.hpp"

namespace mgplan::model {

/// A parameter of one of a rank's chunks.
struct ParameterId {
    std::int32_t chunk = 0;
    std::int32_t parameter = 0;  ///< index in the chunk's list, module order
    bool operator==(const ParameterId&) const = default;
};

/// Parameters that are updated with the same settings.
struct ParameterGroup {
    bool expert = false;  ///< of the optimizer for experts
    bool decays = true;
    std::vector<ParameterId> parameters;  ///< by chunk, then module order
};

/// Always four groups, empty ones too, so that all ranks agree on them: dense with and without decay, experts with and
/// without. Megatron-LM does the same (core/optimizer/__init__.py _get_param_groups: groups without overrides
/// first, keys gathered from all ranks; one optimizer for dense parameters, one for experts).
[[nodiscard]] std::vector<ParameterGroup> parameter_groups(std::span<const std::vector<Parameter>> chunks);

/// A piece of a parameter in a rank's shard.
struct OwnedPiece {
    std::int32_t chunk = 0;
    BucketId bucket;
    ShardRange range;
};

/// The pieces that a data-parallel rank owns of each of the four groups, in the order of its shards: by chunk, buffer,
/// bucket and position, so the last parameters of a chunk come first (core/optimizer/distrib_optimizer.py
/// _build_optimizer_group_ranges). `layouts[c]` is the distributed optimizer's layout of chunks[c].
[[nodiscard]] std::vector<std::vector<OwnedPiece>> owned_pieces(std::span<const std::vector<Parameter>> chunks,
                                                                std::span<const BufferLayouts> layouts, std::int64_t dp_rank,
                                                                std::int64_t expert_dp_rank);

}  // namespace mgplan::model
