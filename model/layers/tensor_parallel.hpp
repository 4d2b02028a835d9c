#pragma once
// The conjugate operators around a tensor-parallel region (Shoeybi et al., arXiv 1909.08053; with sequence parallelism
// Korthikanti et al., arXiv 2205.05198), and the linear layers at its borders, as Megatron-core's
// tensor_parallel/{mappings,layers}.py have them.

#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/layers/linear_input.hpp"
#include "model/layers/low_rank_adapter.hpp"
#include "model/layers/underway.hpp"

namespace mgplan::model {

/// Into the region: with sequence parallelism the rows of all tp ranks gathered, else x itself.
[[nodiscard]] Tensor enter_region(const RankContext& context, const Tensor& x);
/// Out of the region: partial sums reduce-scattered by rows with sequence parallelism, else all-reduced in place.
[[nodiscard]] Tensor leave_region(const RankContext& context, const Tensor& partial);
/// The same, started: code that runs before wait() must not read the results nor write the arguments. All tp ranks start in one order.
[[nodiscard]] Underway start_entering(const RankContext& context, Tensor x);
[[nodiscard]] Underway start_leaving(const RankContext& context, Tensor partial);

/// (rows, n) of every tp rank side by side, rank by rank: (rows, tp·n).
[[nodiscard]] Tensor gather_columns(const RankContext& context, const Tensor& part);
/// The rank's columns of (rows, tp·n): (rows, n).
[[nodiscard]] Tensor own_columns(const RankContext& context, const Tensor& whole);

struct ColumnParallelOptions {
    bool gather_output = false;  ///< y whole on every rank; not with sequence parallelism
    bool skip_bias_add = false;  ///< the caller adds bias() and its gradient, fused with other work
};

/// y = x Wᵀ + b with the rows of W (out / tp, in) divided over tp, in Parameter::shard_stride blocks. Inputs and outputs:
/// x outside the region (rows / tp with sequence parallelism), y inside: (rows, out / tp), or (rows, out) gathered rank by
/// rank. Products of weights without copies in fp8 also do the work of biases if the device's library can (model/ops/linear.hpp).
///
/// Weights with copies in fp8 (Weight::fp8) are multiplied with inputs in e4m3 and gradients of outputs in e5m2, sums in fp32; so are those
/// of the other two classes. Each rank casts by the largest of its own values, except that tensors which sequence parallelism gathers,
/// inputs here and gradients of outputs there, have one scale over tp (Transformer Engine, pytorch/module/linear.py, layernorm_linear.py,
/// set_quantizer_amax_reduction_group). Weights with scales for blocks have e4m3 for all (model/layers/fp8_block_linear.hpp).
class ColumnParallelLinear {
public:
    ColumnParallelLinear() = default;
    ColumnParallelLinear(const Weight& weight, Weight bias, ColumnParallelOptions options = {});
    /// The linear layer of a path within a decoder layer ("self_attention.linear_qkv"), with the bias and the adapter that it has.
    ColumnParallelLinear(const LayerSite& site, const std::string& module);

    /// Adds the weight, if it has copies in fp8, so that several are refreshed together before forward(), which otherwise refreshes them.
    void add_copied(std::vector<CopiedWeight>& into) const;
    /// In the form in which the layer reads it and a backward keeps it.
    [[nodiscard]] LinearInput input(const RankContext& context, const Tensor& x) const;
    /// `saved`: of a layer with an adapter.
    [[nodiscard]] Tensor forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    /// `x`: the forward's, not read unless reads_input(); gathered again with sequence parallelism rather than kept. Adds to the main
    /// gradients, that of the weight by add_weight_gradient(): layer and context outlive the pass that does it. If this pass adds it, the
    /// gather is started before the input's gradient, and that is reduced while the weight's is computed (Megatron-core,
    /// tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward).
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    /// True if a backward reads the layer's input: its weight is trained, or an adapter that did not keep it (`saved`, of the forward).
    [[nodiscard]] bool reads_input(const AdapterSaved& saved = {}) const {
        return weight_.trained() || (adapter_.defined() && !saved.whole.defined());
    }
    /// The rank's share (out / tp); undefined without a bias.
    [[nodiscard]] const Weight& bias() const { return bias_; }

private:
    Weight weight_, bias_;
    Weight added_;  ///< the bias, where the layer adds it itself
    LowRankAdapter adapter_;
    ColumnParallelOptions options_;
};

struct RowParallelOptions {
    bool input_is_parallel = true;  ///< false: x is whole on every rank, which takes its columns; not with sequence parallelism
    bool skip_bias_add = false;     ///< as above
};

/// y = x Wᵀ + b with the columns of W (out, in / tp) divided over tp: x inside the region, y outside. The bias is added
/// once, after the reduction; with one rank, which reduces nothing, as a column-parallel layer's is.
class RowParallelLinear {
public:
    RowParallelLinear() = default;
    RowParallelLinear(const Weight& weight, Weight bias, RowParallelOptions options = {});
    /// As above.
    RowParallelLinear(const LayerSite& site, const std::string& module);

    void add_copied(std::vector<CopiedWeight>& into) const;
    /// Returns x in the form that the layer reads. A backward that has the uncast rows for another reason may keep those: they are cast
    /// again, to the same codes.
    [[nodiscard]] LinearInput input(const Tensor& x) const;
    [[nodiscard]] Tensor forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    [[nodiscard]] bool reads_input() const { return weight_.trained() || adapter_.defined(); }
    /// Whole on every rank; undefined without a bias.
    [[nodiscard]] const Weight& bias() const { return bias_; }

private:
    Weight weight_, bias_;
    Weight added_;  ///< likewise
    LowRankAdapter adapter_;
    RowParallelOptions options_;
};

/// y = x Wᵀ with W whole on every tp rank (Transformer Engine's "duplicated"): x and y both outside the region, so that
/// with sequence parallelism each rank computes its rows, and without it every rank all of them, by the same algorithms
/// (ProductAlgorithm::first), so that the copies of W stay equal.
class DuplicatedLinear {
public:
    DuplicatedLinear() = default;
    explicit DuplicatedLinear(const Weight& weight);
    /// As above; undefined where the layer has no such weight.
    DuplicatedLinear(const LayerSite& site, const std::string& module);

    void add_copied(std::vector<CopiedWeight>& into) const;
    /// In the form in which the layer reads it; two such layers with one input read one cast.
    [[nodiscard]] LinearInput input(const Tensor& x) const;
    [[nodiscard]] Tensor forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    /// dy must be the whole gradient, not one tp rank's part of it.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const LinearInput& x, AdapterSaved* saved = nullptr) const;
    [[nodiscard]] bool reads_input() const { return weight_.trained() || adapter_.defined(); }

private:
    Weight weight_;
    LowRankAdapter adapter_;
};

}  // namespace mgplan::model
