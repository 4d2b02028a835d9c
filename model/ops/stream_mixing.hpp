#pragma once
// Parallel residual streams, and the small maps that mix them (manifold-constrained hyper-connections, arXiv 2512.24880, equations
// 5 to 9; Megatron-LM at d98e8a64, core/transformer/hyper_connection.py). Implemented for shapes alone: no device here computes them
// (layers_known_of_shapes()). n streams of h values make rows of n · h; S below are the bytes of rows · h.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// One over the length of each row of x (rows, n·h): (rows) in the type of statistics. Reads n S.
[[nodiscard]] Tensor stream_lengths(const Tensor& x);
/// The part of x's gradient that comes by its lengths, added to dx (rows, n·h). Reads 2 n S, writes n S.
void stream_lengths_backward(const Tensor& x, const Tensor& lengths, const Tensor& dx);

/// Weights of streams (rows, maps) from their raw values, lengths, scales and biases.
[[nodiscard]] Tensor stream_maps(const Tensor& raw, const Tensor& lengths);
/// Gradient of the raw values from that of the weights.
[[nodiscard]] Tensor stream_maps_backward(const Tensor& d_maps, const Tensor& raw, const Tensor& lengths);

/// Normalises the last n · n of the maps of each row, in place, to a matrix whose rows and columns sum to 1, in `rounds` rounds (Sinkhorn
/// and Knopp). Returns the matrix before, (rows, n · n), for the backward, which repeats all rounds.
[[nodiscard]] Tensor balance_maps(const Tensor& maps, std::int64_t streams, std::int64_t rounds);
void balance_maps_backward(const Tensor& d_maps, const Tensor& start, std::int64_t rounds);

/// The weighted sum of a row's streams: x (rows, n·h), maps (rows, at least n) -> (rows, h). Reads n S, writes S.
[[nodiscard]] Tensor gather_streams(const Tensor& x, const Tensor& maps, std::int64_t streams);
/// Adds to the gradients of x (rows, n·h) and of the maps. Reads (2 n + 1) S, writes n S.
void gather_streams_backward(const Tensor& dy, const Tensor& x, const Tensor& maps, const Tensor& dx, const Tensor& d_maps);

/// x mixed by its matrix, and y (rows, h) added to each stream with its weight: (rows, n·h). Reads (n + 1) S, writes n S.
[[nodiscard]] Tensor mix_streams(const Tensor& x, const Tensor& y, const Tensor& maps);
struct MixGradients {
    Tensor dx;      ///< (rows, n·h)
    Tensor dy;      ///< (rows, h)
    Tensor d_maps;  ///< (rows, maps)
};
/// Reads (2 n + 1) S, writes (n + 1) S.
[[nodiscard]] MixGradients mix_streams_backward(const Tensor& d_output, const Tensor& x, const Tensor& y, const Tensor& maps);
/// The work of gather_streams() and mix_streams() once more, without their results: for those that are recomputed for several layers
/// together.
void repeat_mixing(const Tensor& x, const Tensor& y, const Tensor& maps);

/// Each stream a copy of x (rows, h): (rows, n·h). Reads S, writes n S.
[[nodiscard]] Tensor copy_to_streams(const Tensor& x, std::int64_t streams);
/// The sum of a row's streams (rows, n·h) -> (rows, h), or their mean. Reads n S, writes S.
[[nodiscard]] Tensor sum_of_streams(const Tensor& x, std::int64_t streams, std::string_view name);

}  // namespace mgplan::model
