#pragma once
// The dense MLP half of a decoder layer: norm, two products with the activation between, residual addition.

#include "model/layers/context.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of mlp drops `before`, `after` and `uncut`, of layernorm `normed`.
struct MlpSaved {
    Tensor x;
    NormStatistics statistics;
    LinearInput normed;
    Tensor before;      ///< output of the first product: (rows, 2·ffn/tp) when gated, the gate times its multiplier
    LinearInput after;  ///< output of the activation, times the MLP's multiplier: (rows, ffn/tp)
    Tensor uncut;       ///< of a cut gate: its values before, (rows, ffn/tp), …
    Tensor gate_sums;   ///< … and the sums that give its bound, (rows, 2)
    AdapterSaved first, second;
    StreamNormSaved behind;
};

class Mlp {
public:
    /// `module`: in front of the names of its weights, after the layer's prefix. `cuts_gate`: only the largest values of a gate pass
    /// (model/ops/gate_cut.hpp).
    Mlp(const mgplan::Mlp& mlp, const LayerSite& site, const std::string& module = "", bool cuts_gate = false);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    /// `residual`: what the result is added to; `x` itself where the MLP follows the attention.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& residual,
                                 MlpSaved& saved) const;
    /// Gradient of x: including the residual path if the MLP follows the attention, without it if the two are parallel.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MlpSaved& saved) const;

private:
    /// From saved.normed: the values before the activation and after it.
    void activate(const RankContext& context, MlpSaved& saved) const;
    /// Multiplies the gate's columns of the activation's input, or of its gradient.
    void scale_gate(const RankContext& context, const Tensor& before) const;
    /// Cuts the gate's columns of the activation's input, or of its gradient; sums are those of all tp ranks' columns.
    void cut(const RankContext& context, MlpSaved& saved) const;
    void cut_backward(const RankContext& context, const Tensor& d_before, const MlpSaved& saved) const;
    /// Returns the input of the first product.
    [[nodiscard]] LinearInput normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const;

    mgplan::Mlp mlp_;
    Norms norms_;
    ResidualPath residual_;
    EnumSet<RecomputeModule> recompute_;
    bool cuts_gate_;
    Weight norm_weight_, norm_bias_;
    Weight alpha_positive_, alpha_negative_;  ///< of xIELU
    ColumnParallelLinear first_;
    RowParallelLinear second_;
    StreamNorm behind_;
};

}  // namespace mgplan::model
