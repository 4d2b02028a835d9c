#pragma once
// Code shared by all products of matrices, for any type of operands: for model/ops alone.

#include "model/ops/fp8_scaling.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {

/// out (m, n) = op(a) · op(b), or out += that. The scales: of operands in fp8 alone, (1) fp32 each, or one for each block.
struct Product {
    Tensor a, b, out;
    std::int64_t m, n, k;
    Transposes transposes;
    bool accumulate = false;
    ProductAlgorithm algorithm = ProductAlgorithm::first;
    Tensor scale_a = {}, scale_b = {};
    Fp8Scaling scaling_a = Fp8Scaling::tensor, scaling_b = Fp8Scaling::tensor;
    Tensor bias = {}, row_sums = {};  ///< see MatmulArguments
};

/// Tiles for operands that the CPU widens, and a library's workspace; undefined if the device needs none.
struct ProductScratch {
    Tensor a, b, out, workspace;
};

/// For a product (m, n) along k of matrices of a type.
[[nodiscard]] ProductScratch product_scratch(Device& device, Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k);

/// Reports the product, takes its scratch, and computes it if the device does. The caller has checked shapes and types.
void run_product(const Product& product);

}  // namespace mgplan::model
