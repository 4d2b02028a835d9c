#pragma once
// Adds a half layer's output to the residual stream, with dropout where the model has it.

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Place of a dropout in the model: each draws from a stream of its own.
enum class ResidualPlace : std::uint8_t { embedding, attention, mlp };

/// Returns the tensor on the residual path of a half: its input x, or with ModelSpec::normed_residual the output of its norm.
[[nodiscard]] const Tensor& residual_path(const ModelSpec& model, const Tensor& x, const Tensor& normed);

/// Returns residual + dropout(x), each with its factor where the model has some. x and residual outside the tp region; x may be
/// overwritten. With hyper-connections x and gradients stay unchanged: streams are mixed around the half.
[[nodiscard]] Tensor add_residual(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model,
                                  std::int64_t layer, ResidualPlace place, const Tensor& x, const Tensor& residual);
/// Gradient of x; dy itself without dropout and factors.
[[nodiscard]] Tensor residual_backward(const RankContext& context, const MicrobatchContext& microbatch, const ModelSpec& model,
                                       std::int64_t layer, ResidualPlace place, const Tensor& dy);

/// Add the residual path's part of a half's gradient to that of its norm's output, or of its input: of the tensor on the path.
void add_path_to_normed(const ModelSpec& model, ResidualPlace place, const Tensor& dy, const Tensor& d_normed);
void add_path_to_input(const ModelSpec& model, const Tensor& dy, const Tensor& dx);
/// Returns the tensor that norm_backward() of a half's norm adds in place of add_path_to_input(): dy, or undefined if that is still to be
/// called.
[[nodiscard]] Tensor path_in_norm(const RankContext& context, const ModelSpec& model, const Tensor& dy);

}  // namespace mgplan::model
