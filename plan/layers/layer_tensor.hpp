#pragma once
// The trained tensors of a layer: global shapes and how they are sharded. Each kind of layer lists its own once (list_tensors()).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layers/mixer_traits.hpp"
#include "plan/layers/norms.hpp"

namespace mgplan {

/// When each tp rank computes only a part of a replicated parameter's gradient, so that the parts are summed over tp: never
/// (it is divided over tp itself, or every rank sees all rows and heads), under sequence parallelism (it works on the
/// rank's rows), always (it works on the rank's heads).
enum class PartialGradient : std::uint8_t { never, sequence_parallel, always };

/// Values of a parameter before training: by_name, matrices normal, norms 1, biases 0 (model/layers/initialization.hpp); the others are
/// those of state-space layers (mamba_ssm modules/mamba2.py; Megatron-core ssm/mamba_mixer.py, ssm/gated_delta_net/common.py).
enum class InitialValues : std::uint8_t {
    by_name,
    ones,
    log_of_decay,  ///< log of a value drawn evenly from 1 to 16
    step_bias,     ///< softplus of it is a step whose logarithm is drawn evenly, from 0.001 to 0.1
    by_taps,       ///< of convolutions, drawn evenly from -1 / sqrt(taps) to that, `initial_bound`
    constant,      ///< `initial_bound`
};

/// The types that a tensor can have: gemm_weight, quantised by recipes that quantise weights; storage, always the model's own.
enum class DtypeClass : std::uint8_t { storage, gemm_weight };

/// One tensor of a layer, or equal tensors of its experts, before it is sharded.
struct LayerTensor {
    std::string name;                  ///< Megatron-core's path within the layer: "self_attention.linear_qkv.weight"
    std::vector<std::int64_t> shape;   ///< global, in elements
    std::optional<int> shard_axis;     ///< dimension sharded over tp, of experts over etp; nothing: replicated
    int equal_blocks = 1;              ///< blocks of the sharded axis of which each rank holds a share (gate and up: 2)
    std::vector<std::int64_t> blocks;  ///< the same where their sizes differ (q, k, v): rows of each, global; empty: equal_blocks
    bool expert = false;               ///< `copies` tensors that are divided over ep, the number appended to the name
    std::int64_t copies = 1;           ///< equal tensors
    std::int64_t copies_of_token = 1;  ///< of these, the ones that one token passes
    bool on_each_expert_rank = false;  ///< one tensor on every ep rank, whatever their number, that its experts share
    bool trained = true;               ///< false: frozen, without gradient and optimizer state
    DtypeClass dtype = DtypeClass::storage;
    PartialGradient partial_gradient = PartialGradient::never;
    InitialValues initial = InitialValues::by_name;
    double initial_bound = 0;  ///< of InitialValues::by_taps and constant

    LayerTensor& for_gemm() {
        dtype = DtypeClass::gemm_weight;
        return *this;
    }
    LayerTensor& starts(InitialValues values, double bound = 0) {
        initial = values;
        initial_bound = bound;
        return *this;
    }
    /// Initial values of a convolution with `taps` taps.
    LayerTensor& starts_by_taps(std::int64_t taps);
};

/// A tensor that is counted and nothing else.
struct CountedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t copies = 1;
    std::int64_t copies_of_token = 1;
    bool operator==(const CountedTensor&) const = default;
    MGPLAN_MEMBERS(name, shape, copies, copies_of_token)
};

/// Collects tensors in the order in which Megatron-core registers their modules.
class TensorLister {
public:
    /// `norms`: those of the layer. `hidden`: width of the residual stream.
    TensorLister(std::vector<LayerTensor>& tensors, const Norms& norms, std::int64_t hidden, std::string prefix = {})
        : tensors_(tensors), norms_(norms), hidden_(hidden), prefix_(std::move(prefix)) {}

    [[nodiscard]] std::int64_t hidden() const { return hidden_; }
    [[nodiscard]] const Norms& norms() const { return norms_; }
    /// The same for a module: "mixer.".
    [[nodiscard]] TensorLister within(std::string_view module) const { return {tensors_, norms_, hidden_, prefix_ + std::string(module)}; }

    LayerTensor& replicated(std::string_view name, std::vector<std::int64_t> shape,
                            PartialGradient partial = PartialGradient::sequence_parallel);
    LayerTensor& sharded(std::string_view name, std::vector<std::int64_t> shape, int axis, int equal_blocks = 1);
    /// Rows in blocks of unequal size, each sharded; `rest`: the other dimensions.
    LayerTensor& sharded_blocks(std::string_view name, std::vector<std::int64_t> blocks, std::vector<std::int64_t> rest);

    /// A norm of the layer's kind over `width` values, replicated: weight and, where it has one, bias. `stem`: "input_layernorm.".
    void norm(std::string_view stem, std::int64_t width, PartialGradient partial = PartialGradient::sequence_parallel);
    /// A norm whose width is sharded over tp.
    void sharded_norm(std::string_view stem, std::int64_t width);
    /// The layer's norm in front of a mixer, where it has one.
    void norm_before_mixer(std::string_view stem);
    /// The same in front of a feed-forward, which may share its mixer's.
    void norm_before_feed_forward(std::string_view stem);

private:
    LayerTensor& add(std::string_view name, std::vector<std::int64_t> shape);

    std::vector<LayerTensor>& tensors_;
    const Norms& norms_;
    std::int64_t hidden_;
    std::string prefix_;
};

}  // namespace mgplan
