#pragma once
// The part of each parameter that a data-parallel rank owns with the distributed optimizer: of every bucket rank r holds the
// r-th of dp equal pieces, with any parameters (or padding) in it. Rules: Megatron-LM at d98e8a64,
// core/optimizer/distrib_optimizer.py (_build_model_gbuf_range, _build_model_gbuf_param_range_map).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"

namespace mgplan::model {

/// Elements [start, end).
struct ElementRange {
    std::int64_t start = 0;
    std::int64_t end = 0;
    [[nodiscard]] std::int64_t size() const { return end - start; }
    bool operator==(const ElementRange&) const = default;
};

/// The same elements of one parameter in four coordinates; all four ranges have the same size, at least 1.
struct ShardRange {
    std::int32_t parameter = 0;    ///< index into the list the layout was made of
    ElementRange world;            ///< in the buffer
    ElementRange world_in_bucket;  ///< in the bucket
    ElementRange local;            ///< in this rank's shard of the bucket
    ElementRange in_param;         ///< in the flattened parameter
    bool operator==(const ShardRange&) const = default;
};

/// The piece of the buffer that `dp_rank` owns of bucket `bucket`. The buffer must be sharded, rank and bucket exist.
[[nodiscard]] ElementRange shard_of_bucket(const BufferLayout& buffer, std::size_t bucket, std::int64_t dp_rank);

/// The parameters that lie in that piece, by position; none where it is all padding. O(log spans + result).
[[nodiscard]] std::vector<ShardRange> shard_ranges(const BufferLayout& buffer, std::size_t bucket, std::int64_t dp_rank);

/// Elements of parameters that `dp_rank` owns in the whole buffer, padding and holes left out.
[[nodiscard]] std::int64_t owned_numel(const BufferLayout& buffer, std::int64_t dp_rank);

}  // namespace mgplan::model
