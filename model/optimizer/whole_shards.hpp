#pragma once
// Sharded buffers in which no parameter is cut, because an optimizer that orthogonalises a matrix needs all of it. Each bucket still
// divides into equal shards, so that gradients are scattered and parameters gathered as usual.
//
// After Megatron-LM (core/optimizer/layer_wise_optimizer.py, compute_per_buffer_param_layout): of each bucket the largest
// parameter goes first, to the shard that holds least so far (longest processing time first), and all shards are padded to the
// fullest one.

#include <cstdint>
#include <span>

#include "model/optimizer/buffer_layout.hpp"

namespace mgplan::model {

/// Fills an empty sharded buffer with the parameters that `order` names, from its first position on. A bucket is closed when it
/// holds the size of effective_bucket_size() and, so that a large parameter does not leave the shards of the others empty, as much
/// as its largest parameter for each shard. False when they do not fit below kMaxBufferNumel. O(n log n + n ranks).
[[nodiscard]] bool fill_with_whole_parameters(BufferLayout& buffer, std::span<const BufferParameter> parameters,
                                              std::span<const std::int32_t> order, const BufferOptions& options);

}  // namespace mgplan::model
