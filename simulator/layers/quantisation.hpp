#pragma once
// Kernels that bring the operands of linear layers to fp8: seconds of one microbatch on one rank, nothing at other precisions or on
// GPUs without fp8.
//
// Transformer Engine (2.x, transformer_engine/pytorch/module/: linear.py, layernorm_linear.py, base.py) quantises the input of a
// linear layer and the gradient of its output, each once for two products: 2 bytes an element are read and what
// fp8_operand_bytes() counts is written. Before Blackwell fp8 products take operands of one layout alone, and the transpose is
// written beside (nvte_is_non_tn_fp8_gemm_supported). A scale of the whole tensor by what is in it (tensorwise, nvfp4) needs a pass of
// its own where no kernel in front finds it. Weights are quantised once an iteration and left out.

#include <cstdint>

#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

/// Where the input of a linear layer comes from: a norm fused with it writes fp8 itself under delayed scaling; norms and activations find
/// the largest magnitude under tensorwise scaling.
enum class LinearInput : std::uint8_t { normed, activated, plain };

/// Whether this shard's linear layers quantise their operands.
[[nodiscard]] bool quantised_products(const Shard& shard);

// Each gives the seconds of a linear layer's forward (its input) and backward (the output's gradient, and an input that is gathered
// again) beside its products. The kernels' launches count among those of the products.

/// `rows` of `in` elements multiplied into rows of `out` elements, on this rank alone.
[[nodiscard]] PieceCost quantise_linear(const Shard& shard, LinearInput input, std::int64_t rows, std::int64_t in, std::int64_t out);

/// The same at the begin of a tp region, `out` elements a token on this rank. Sequence-parallel ranks quantise their own tokens,
/// gather fp8, and transpose what they gathered for the weight gradient.
[[nodiscard]] PieceCost quantise_column_parallel(const Shard& shard, LinearInput input, std::int64_t in, std::int64_t out);

/// At the end of a tp region, `in` elements a token on this rank; the output's gradient is gathered like the input above.
[[nodiscard]] PieceCost quantise_row_parallel(const Shard& shard, LinearInput input, std::int64_t in, std::int64_t out);

/// Seconds in which sequence-parallel ranks gather `width` elements a token that a linear layer multiplies: along rows in fp8, else like
/// tp_gather_seconds().
[[nodiscard]] double gather_operand_seconds(const Shard& shard, std::int64_t width);

}  // namespace mgplan::simulator
