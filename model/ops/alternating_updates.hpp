#pragma once
// Alternating updates (AltUp, arXiv 2301.13310; transformers 5.23.0, modeling_gemma3n.py, Gemma3nTextAltUp and Gemma3nTextModel): n
// residual streams of h values, rows of n · h, of which a layer reads and changes the first; the others are predicted before the layer
// and corrected after it. Implemented for shapes alone (layers_known_of_shapes()). S below are the bytes of rows · h. Gradients that a
// function adds to are read and written.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Stream i of x (rows, n·h) as (rows, h), without a copy: which rows of memory hold it changes no size.
[[nodiscard]] Tensor stream_of(const Tensor& x, std::int64_t streams, std::int64_t i);

/// tanh of a router's few values, and the gradient of these from that of the result y.
[[nodiscard]] Tensor squash(const Tensor& x);
[[nodiscard]] Tensor squash_backward(const Tensor& dy, const Tensor& y);

/// x plus its streams mixed by a matrix (rows, n·n) for each row: (rows, n·h). Reads n S, writes n S.
[[nodiscard]] Tensor predict_streams(const Tensor& x, const Tensor& matrices, std::int64_t streams);
struct PredictionGradients {
    Tensor dx;          ///< (rows, n·h)
    Tensor d_matrices;  ///< (rows, n·n)
};
/// Reads 2 n S, writes n S.
[[nodiscard]] PredictionGradients predict_streams_backward(const Tensor& dy, const Tensor& x, const Tensor& matrices, std::int64_t streams);

/// Each predicted stream plus the layer's output y (rows, h), less the first prediction, with a weight of `weights` (rows, n). Reads
/// (n + 1) S, writes n S.
[[nodiscard]] Tensor correct_streams(const Tensor& predictions, const Tensor& y, const Tensor& weights);
struct CorrectionGradients {
    Tensor dy;         ///< (rows, h)
    Tensor d_weights;  ///< (rows, n)
};
/// `d_streams`, the gradient of the result, becomes that of the predictions: its first stream changes. Reads (n + 2) S, writes 2 S.
[[nodiscard]] CorrectionGradients correct_streams_backward(const Tensor& d_streams, const Tensor& predictions, const Tensor& y,
                                                           const Tensor& weights);

/// y (rows, h) added to all streams of x but the first, in place. Reads n S, writes (n - 1) S.
void add_to_further_streams(const Tensor& y, const Tensor& x, std::int64_t streams);
/// The gradient of y from that of the sum. Reads (n - 1) S, writes S.
[[nodiscard]] Tensor sum_of_further_streams(const Tensor& dx, std::int64_t streams);

/// The first corrected stream x (rows, h) times a trained value for each column. Reads S, writes S.
[[nodiscard]] Tensor weigh_corrected(const Tensor& x, const Tensor& weights);
/// Adds to the gradient of x, in place, and to that of the weights; x is computed again from the first prediction and the layer's output.
/// Reads 4 S, writes S.
void weigh_corrected_backward(const Tensor& dy, const Tensor& prediction, const Tensor& given, const Tensor& weights, const Tensor& dx,
                              const Tensor& d_weights);

/// Each row of x (rows, h), written to `into`, as long as that of `like`. Reads 2 S, writes S.
void match_lengths(const Tensor& x, const Tensor& like, const Tensor& into);
/// The gradient of x; adds to that of `like`. Reads 4 S, writes 2 S.
[[nodiscard]] Tensor match_lengths_backward(const Tensor& dy, const Tensor& x, const Tensor& like, const Tensor& d_like);

}  // namespace mgplan::model
