#pragma once
// A linear layer's weight as products in fp8 read it.

#include <memory>
#include <optional>
#include <span>

#include "model/communicator/communicator.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "plan/training/own_fp8.hpp"

namespace mgplan::model {

/// Scale and largest magnitude of one tensor of a layer under delayed scaling: parts of Fp8Delayed's tensors.
struct Fp8Followed {
    Tensor scale;    ///< (2) as Fp8Tensor has it; the largest magnitude is that of the steps before, and stays for all of a step
    Tensor largest;  ///< (1) fp32, of this step's values so far
    /// (n, 2) the scale and the following ones: of an expert's projection, those of the experts after it on this rank.
    Tensor scales_onward{};
};

/// Copies of a weight (out, in) that last a step: as it lies for the forward, transposed for the gradient of the input (Transformer Engine,
/// pytorch/module/base.py, get_weight_workspace).
struct Fp8Weight {
    Fp8Tensor values;    ///< (out, in) e4m3
    Tensor transposed;   ///< (in, out), with the same scale
    bool fresh = false;  ///< made of the weight as it is: the step's first pass does that
    /// Codes are the parameter itself, and code that changes it casts (model/optimizer/fp8_parameters.hpp): a pass makes the transpose
    /// alone.
    bool stored = false;
    /// Under delayed scaling: of the layer's input, of the weight, of the gradient of its output.
    struct Followed {
        Fp8Followed input, weight, gradient;
    };
    std::optional<Followed> followed{};
    /// With scales for blocks, in place of `values` and `transposed`: squares, or with vectors of 32 two casts of the weight as it is.
    struct Blocks {
        Fp8Blocks values, transposed;
    };
    std::optional<Blocks> blocks{};
};

/// How weights are scaled by blocks; nothing under other recipes.
[[nodiscard]] std::optional<Fp8Scaling> blocks_of_weights(OwnFp8 scaling);

/// Returns the scaling of the rows that such a weight is multiplied with.
[[nodiscard]] Fp8Scaling vectors_beside(const Fp8Weight& weight);

/// Undefined values, counted with the parameters: 2 bytes an element, and the scale, which under delayed scaling comes with `followed`, or
/// the scales of blocks both ways.
[[nodiscard]] std::shared_ptr<Fp8Weight> make_fp8_weight(Device& device, std::int64_t rows, std::int64_t columns,
                                                         OwnFp8 scaling = OwnFp8::current);
/// For a weight that is stored in fp8: `codes` (rows, columns) are its parameter. Fp8Parameters casts them and gives the scale.
[[nodiscard]] std::shared_ptr<Fp8Weight> make_stored_fp8_weight(Device& device, const Tensor& codes);
/// A weight, and what products read in its place.
struct CopiedWeight {
    std::shared_ptr<Fp8Weight> copies;
    Tensor weight;
};
/// Casts weights both ways, or transposes those that are stored in fp8, but for those whose copies are fresh. The largest magnitudes of
/// those with one scale each are found together, in a few kernels: all of one type and device. Takes no memory.
void refresh(std::span<const CopiedWeight> weights);

/// A cast: e4m3, or e5m2 for gradients of outputs. Ranks of `group` have one scale; null: this one alone.
[[nodiscard]] Fp8Tensor to_fp8(const Tensor& x, Dtype dtype, Communicator* group, Fp8Copies copies, std::string_view name);
/// The same with the scale of the earlier steps, which is equal on all ranks.
[[nodiscard]] Fp8Tensor to_fp8(const Tensor& x, Dtype dtype, const Fp8Followed& followed, Fp8Copies copies, std::string_view name);

}  // namespace mgplan::model
