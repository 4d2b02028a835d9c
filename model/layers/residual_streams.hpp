#pragma once
// Parallel residual streams around the halves of a layer, and at the ends of the model (plan/model/model_spec.hpp,
// HyperConnections). n streams of h values make rows of n · h, outside the tensor-parallel region, so that with sequence parallelism each
// tp rank mixes its own rows.

#include <string>

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Tensors the forward of one half saves.
struct ResidualStreamsSaved {
    Tensor x;        ///< (rows, n·h): the streams before the half
    Tensor lengths;  ///< (rows)
    Tensor raw;      ///< (rows, n·(n + 2)): maps before scales, biases and bounds
    Tensor maps;     ///< the same after them
    Tensor start;    ///< (rows, n·n): the matrix before its rounds
    Tensor branch;   ///< (rows, h): output of the half
    // Between the backward of the mix and that of the half's input.
    Tensor dx, d_maps;
};

/// The streams around one half of a layer.
class ResidualStreams {
public:
    /// `module`: "self_attention_hyper_connection.". Under RecomputeModule::mhc mixes are made again in the backward, for a block of
    /// layers together: the steps of a chunk count the memory of that, this class its work. `norm`: of a separate norm before the half that
    /// is made again with them, "input_layernorm."; else empty.
    ResidualStreams(const LayerSite& site, const std::string& module, const std::string& norm);

    /// The half's input (rows, h) from the streams x.
    [[nodiscard]] Tensor enter(const RankContext& context, const Tensor& x, ResidualStreamsSaved& saved) const;
    /// The streams after the half, whose output is y (rows, h).
    [[nodiscard]] Tensor leave(const RankContext& context, Tensor y, ResidualStreamsSaved& saved) const;

    /// The gradient of y.
    [[nodiscard]] Tensor leave_backward(const RankContext& context, const Tensor& d_streams, ResidualStreamsSaved& saved) const;
    /// The gradient of x, from that of the half's input; adds to the main gradients of the maps' weights. Consumes what was saved.
    [[nodiscard]] Tensor enter_backward(const RankContext& context, Tensor d_input, ResidualStreamsSaved& saved) const;

private:
    HyperConnections sizes_;
    Normalization normalization_;
    Weight projection_, norm_weight_, norm_bias_;
    bool repeated_, repeats_norm_;
};

struct StreamHeadSaved {
    Tensor x, lengths, raw, maps;  ///< as ResidualStreamsSaved has them; of a mean nothing
};

/// Combines the streams before the last norm: by trained weights, or by their mean.
class StreamHead {
public:
    StreamHead(const ModelSpec& model, const WeightTable& weights);

    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, StreamHeadSaved& saved) const;
    /// Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, StreamHeadSaved& saved) const;

private:
    const HyperConnections& sizes_;
    Weight weights_;
};

}  // namespace mgplan::model
