#pragma once
// The matrix products that real steps ask cuBLASLt for, as the module's own code describes them: each distinct one once.

#include <string>
#include <vector>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

struct AskedProduct {
    std::string step;  ///< the first that asks for it
    Gemm gemm;         ///< its addresses lie as those of a card and hold nothing
};

/// Those of steps of whole models on a card of this architecture (10·major + minor): bf16 with and without fused attention, fp32 and
/// fp64, and the recipes of fp8 that the card has; mixtures with uneven experts, of one row and odd numbers too.
[[nodiscard]] std::vector<AskedProduct> asked_products(int architecture);

/// "(transposed 4096 x 300) x (300 x 1024) of bf16 into fp32, added, 2 at strides 128, 64 and 4096", for messages.
[[nodiscard]] std::string text_of(const Gemm& gemm);

/// The largest power of two up to 256 that divides the address, as cuBLASLt is told it.
[[nodiscard]] std::int64_t alignment_of(const void* memory);

}  // namespace mgplan::runtime::cuda
