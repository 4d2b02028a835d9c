#pragma once
// Bytes of the fp8 operands of GEMMs other than weights: inputs and output gradients, each with its scales.

#include <cstdint>

#include "plan/training/megatron_switches.hpp"

namespace mgplan::simulator {

/// A matrix of rows x columns, quantised along its rows (for the forward GEMM and the input's gradient) or along its columns (for the
/// weight's gradient). The column-wise copy of an input is kept for the backward; it differs from the row-wise copy only in its scales.
struct Fp8OperandBytes {
    std::int64_t rowwise = 0;
    std::int64_t columnwise = 0;
    std::int64_t both = 0;  ///< both together; one copy of the data if the GPU multiplies fp8 in any layout
    [[nodiscard]] Fp8OperandBytes times(std::int64_t count) const { return {rowwise * count, columnwise * count, both * count}; }
    bool operator==(const Fp8OperandBytes&) const = default;
};

/// By recipe (Transformer Engine, transformer_engine/pytorch/tensor/):
/// - delayed and tensorwise (float8_tensor.py): a byte an element, before Blackwell a second for the transpose
///   (nvte_is_non_tn_fp8_gemm_supported); one fp32 scale;
/// - blockwise (float8_blockwise_tensor.py, one-dimensional blocks): an fp32 scale for 128 elements, the other dimension padded
///   to 4;
/// - mxfp8 (mxfp8_tensor.py): a byte for 32 elements, padded to 4, the other dimension to 128.
/// - nvfp4 (nvfp4_tensor.py): half a byte an element, a byte for 16, padded to 4, the other dimension to 128; one fp32 maximum.
/// Zero on GPUs without fp8 (before Ada).
[[nodiscard]] Fp8OperandBytes fp8_operand_bytes(std::int64_t rows, std::int64_t columns, QuantisedFormat format, int compute_capability);
[[nodiscard]] inline Fp8OperandBytes fp8_operand_bytes(std::int64_t rows, std::int64_t columns, Fp8Recipe recipe, int compute_capability) {
    return fp8_operand_bytes(rows, columns, quantised_format(recipe), compute_capability);
}

}  // namespace mgplan::simulator
