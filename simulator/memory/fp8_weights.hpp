#pragma once
// Bytes of an fp8 weight in Transformer Engine's linear layers: the copy for the forward GEMM, the one for the gradient of its input, and
// their scales.

#include <cstdint>

#include "plan/training/megatron_switches.hpp"
#include "plan/training/own_fp8.hpp"

namespace mgplan::simulator {

/// One weight matrix in fp8.
struct Fp8WeightBytes {
    std::int64_t rowwise = 0;     ///< data in the layout of the weight
    std::int64_t columnwise = 0;  ///< data for the backward GEMM: transposed, or scaled along the other dimension
    std::int64_t scales = 0;      ///< scales of both copies
    [[nodiscard]] std::int64_t total() const { return rowwise + columnwise + scales; }
    Fp8WeightBytes& operator+=(const Fp8WeightBytes& other) {
        rowwise += other.rowwise;
        columnwise += other.columnwise;
        scales += other.scales;
        return *this;
    }
    [[nodiscard]] Fp8WeightBytes times(std::int64_t count) const { return {rowwise * count, columnwise * count, scales * count}; }
    bool operator==(const Fp8WeightBytes&) const = default;
};

/// A matrix of `rows` x `columns`, by recipe (Transformer Engine, transformer_engine/pytorch/tensor/):
/// - delayed and tensorwise (float8_tensor.py, csrc/quantizer.cpp): one byte, and one more for the transpose where the GPU
///   multiplies fp8 in one layout only, before Blackwell (nvte_is_non_tn_fp8_gemm_supported); one fp32 scale;
/// - blockwise (float8_blockwise_tensor.py): both copies; an fp32 scale for each 128 x 128, inner dimension padded to 4;
/// - mxfp8 (mxfp8_tensor.py): both copies; a byte for each 32 elements along the scaled dimension, padded to 128 and 4.
/// - nvfp4 (nvfp4_tensor.py): both copies, half a byte an element; a byte for each 16 elements along the scaled dimension, padded to
///   128 and 4, and an fp32 maximum of each copy.
/// Nothing on GPUs without fp8 (before Ada).
[[nodiscard]] Fp8WeightBytes fp8_weight_bytes(std::int64_t rows, std::int64_t columns, QuantisedFormat format, int compute_capability);
[[nodiscard]] inline Fp8WeightBytes fp8_weight_bytes(std::int64_t rows, std::int64_t columns, Fp8Recipe recipe, int compute_capability) {
    return fp8_weight_bytes(rows, columns, quantised_format(recipe), compute_capability);
}

/// Bytes of an fp8 weight in mgplan's own engine (model/layers/fp8_weight.hpp): both copies on every GPU, because its GEMMs read both
/// operands along the inner dimension, and as a scale the amax and the inverse factor; under delayed scaling such a pair, this step's amax
/// and its history for the layer's input, its weight and the gradient of its output (model/layers/fp8_delayed.hpp); with blocks, the same
/// as Transformer Engine.
[[nodiscard]] Fp8WeightBytes own_fp8_weight_bytes(std::int64_t rows, std::int64_t columns, OwnFp8 scaling);

}  // namespace mgplan::simulator
