#pragma once
// Cost of the MLP half of a decoder layer: norm, dense MLP or mixture of experts, residual.

#include "simulator/layers/quantisation.hpp"
#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

[[nodiscard]] PieceCost dense_mlp_cost(const Shard& shard);
[[nodiscard]] PieceCost mixture_cost(const Shard& shard);

/// The router alone, part of mixture_cost(): its product, scores and top-k. No norm.
[[nodiscard]] PieceCost router_cost(const Shard& shard);

/// Two products of width `ffn` (gated: the first twice as wide) inside a tp region, with the activation between them;
/// shared by the dense MLP and the shared experts. No norm, no residual.
[[nodiscard]] PieceCost mlp_core_cost(const Shard& shard, std::int64_t ffn, LinearInput input, bool recompute_all);

/// The norms of one half of a layer: in front of it, behind it, or both.
[[nodiscard]] PieceCost stream_norms_cost(const Shard& shard);

/// The factor on what one half adds to the residual stream, where the model has one.
[[nodiscard]] PieceCost residual_multiplier_cost(const Shard& shard);

/// The norms of an MLP and the residual addition behind it.
[[nodiscard]] PieceCost norm_and_residual_cost(const Shard& shard);

}  // namespace mgplan::simulator
