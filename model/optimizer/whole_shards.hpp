#pragma once
// Sharded buffers in which no matrix is cut, because an optimizer that orthogonalises a matrix needs all of it. Each bucket still
// divides into equal shards, so that gradients are scattered and parameters gathered as usual.
//
// After Megatron-LM (main at d98e8a64, core/optimizer/layer_wise_optimizer.py, _compute_per_buffer_param_layout): of each bucket the matrix
// with most work goes first, to the shard with least work so far whose elements stay within 1.3 even shares, and all shards are padded to
// the fullest one.

#include <cstdint>
#include <span>

#include "model/optimizer/buffer_layout.hpp"

namespace mgplan::model {

/// Fills an empty sharded buffer with the matrices that `order` names, from its first position on. A bucket is closed when it holds the
/// size of effective_bucket_size(), 0.9 times its largest matrix for each shard, and no room for the next matrix in the padding of its
/// shards. False when they do not fit below kMaxBufferNumel. O(n ranks).
[[nodiscard]] bool fill_with_whole_parameters(BufferLayout& buffer, std::span<const BufferParameter> parameters,
                                              std::span<const std::int32_t> order, const BufferOptions& options);

}  // namespace mgplan::model
