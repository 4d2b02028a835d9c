#pragma once
// Adding a half layer's output to the residual stream, with dropout where the model has it.

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Which dropout of the model: each draws from a stream of its own.
enum class ResidualPlace : std::uint8_t { embedding, attention, mlp };

/// residual + dropout(x). x and residual outside the tp region.
[[nodiscard]] Tensor add_residual(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model,
                                  std::int64_t layer, ResidualPlace place, const Tensor& x, const Tensor& residual);
/// Gradient of x; dy itself without dropout.
[[nodiscard]] Tensor residual_backward(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model,
                                       std::int64_t layer, ResidualPlace place, const Tensor& dy);

}  // namespace mgplan::model
