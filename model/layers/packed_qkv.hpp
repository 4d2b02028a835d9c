#pragma once
// Queries, keys and values from one packed projection: multi-head and grouped-query attention.

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/qkv.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {

/// Tensors a forward saves, only with QK-norm, a gate of the output, clipped projections or an adapter.
struct PackedQkvSaved {
    Tensor clipped;                       ///< the packed projection, which shows the backward where bounds were reached
    Tensor gate;                          ///< logits of the output's gate (rows, heads · head_dim); read by the code that applies it
    Tensor q_before_norm, k_before_norm;  ///< (rows, heads, head_dim)
    NormStatistics q_statistics, k_statistics;
    AdapterSaved adapter;
};

/// The projection holds, per kv head, its query heads (followed by the heads of the output's gate, if any), its key, its value,
/// as Megatron-core's linear_qkv, and is divided
/// evenly over tp. With tp > kv_heads a rank's share is a part of one kv head's group: the shares are gathered, every rank
/// of the group takes the key and the value and its own queries (Megatron-core transformer/attention.py,
/// get_query_key_value_tensors; docs/decisions/0004).
class PackedQkv {
public:
    PackedQkv(const Attention& mixer, const LayerSite& site);

    /// As ColumnParallelLinear.
    void add_copied(std::vector<CopiedWeight>& into) const { projection_.add_copied(into); }
    /// In the form in which the projection reads it.
    [[nodiscard]] LinearInput input(const RankContext& context, const Tensor& normed) const { return projection_.input(context, normed); }
    /// normed (rows outside the tp region, hidden) -> the rank's heads, normalised and rotated where the model does.
    [[nodiscard]] QkvParts forward(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                   PackedQkvSaved& saved) const;
    /// Returns true if the core can read the projection as it is: nothing but positions comes between them, which turn it in place, and no
    /// other rank needs heads of this one's sequences.
    [[nodiscard]] bool stays_packed(const RankContext& context) const;
    /// The rank's heads in the projection, where stays_packed().
    [[nodiscard]] PackedHeads heads(const RankContext& context) const;
    /// normed -> the projection (rows, heads(context).width()), rotated where the model does. stays_packed() is true.
    [[nodiscard]] Tensor forward_packed(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                        PackedQkvSaved& saved) const;
    /// From the gradient of forward_packed()'s result, which is turned back in place, to that of `normed`; adds to the main gradients.
    [[nodiscard]] Tensor backward_packed(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_packed,
                                         const LinearInput& normed, PackedQkvSaved& saved) const;
    /// True if a backward reads `normed`.
    [[nodiscard]] bool reads_input(const PackedQkvSaved& saved) const { return projection_.reads_input(saved.adapter); }
    /// Returns the gradient of `normed`; adds to the main gradients. `d_gate`: of the gate, undefined without one.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, AttentionGradients gradients,
                                  const Tensor& d_gate, const LinearInput& normed, PackedQkvSaved& saved) const;

private:
    /// Turns both by their positions, or back.
    void rotate(const RankContext& context, const MicrobatchContext& microbatch, Tensor& q, Tensor& k, bool inverse) const;
    /// Norm of q or k (rows, heads, head_dim), and its backward.
    [[nodiscard]] Tensor normalised(const RankContext& context, const Tensor& heads, const Weight& weight, const Weight& bias,
                                    NormStatistics& statistics) const;
    /// From the gradient of the packed projection to that of `normed`.
    [[nodiscard]] Tensor through_projection(const RankContext& context, const Tensor& d_packed, const LinearInput& normed,
                                            PackedQkvSaved& saved) const;
    [[nodiscard]] Tensor through_norm(const RankContext& context, const Tensor& dy, const Tensor& heads, const Weight& weight,
                                      const Weight& bias, const NormStatistics& statistics) const;

    Attention mixer_;
    Normalization normalization_;
    std::int64_t rotated_;  ///< values of each head that are turned; 0: none
    RotaryAngles angles_;
    Weight q_norm_weight_, q_norm_bias_, k_norm_weight_, k_norm_bias_;
    ColumnParallelLinear projection_;
};

}  // namespace mgplan::model
