#pragma once
// The adapter of one frozen linear layer (plan/layers/adapters.hpp), in each of the layer's three divisions over tp.

#include <string>

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Tensors that an adapter's backward reads.
struct AdapterSaved {
    Tensor low;    ///< between its two products: (rows, rank)
    Tensor whole;  ///< its input, where it keeps gathered rows (RankContext::keeps_gathered_rows)
};

/// y += factor · (x Aᵀ) Bᵀ. Products stay in the storage type whatever the recipe of others. All functions are of a defined adapter.
class LowRankAdapter {
public:
    /// Undefined: the layer has none.
    LowRankAdapter() = default;
    /// `module`: of the linear layer, "self_attention.linear_qkv".
    LowRankAdapter(const LayerSite& site, const std::string& module);

    [[nodiscard]] bool defined() const { return in_.defined(); }

    // For a W with divided rows: x (rows, in) whole, y (rows, out / tp).
    void add_to_columns(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const;
    /// Adds the rank's part of the gradient of x to `dx`, a partial sum over tp, and both weights' to their main gradients.
    /// `x`: the rank's rows of the layer's input, not read where the forward kept all of them.
    void columns_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved, const Tensor& dx) const;

    // For a W with divided columns: x (rows, in / tp), y (rows outside the tp region, out).
    void add_to_rows(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const;
    void rows_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved, const Tensor& dx) const;

    // For a W that each rank has whole: x (rows, in), y (rows, out).
    void add_to_whole(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const;
    void whole_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved, const Tensor& dx) const;

private:
    /// Adds factor · rows to y.
    void add_scaled(const Tensor& rows, const Tensor& y) const;
    /// factor · dy, of memory of its own.
    [[nodiscard]] Tensor scaled(const RankContext& context, const Tensor& dy) const;
    /// Adds the gradients of B, A and x: `d_out` (rows, out) of B's rows, `d_low` (rows, rank) of A's.
    void add_gradients(const RankContext& context, const Tensor& d_out, const Tensor& low, const Tensor& d_low, const Tensor& x,
                       const Tensor& dx) const;

    Weight in_, out_;
    double factor_ = 1;
};

}  // namespace mgplan::model
