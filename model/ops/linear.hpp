#pragma once
// Products of a linear layer, y = x Wᵀ + b, and what they do for its bias on a device whose library has epilogues for it (cuBLASLt:
// CUBLASLT_EPILOGUE_BIAS and _BGRADB): there neither the output nor its gradient is read once more for the bias alone.

#include <string_view>

#include "model/device/tensor.hpp"
#include "model/ops/product_algorithm.hpp"

namespace mgplan::model {

/// Returns true if the product x (rows, in) · Wᵀ, W (out, in), adds this bias (out) before it rounds: on a GPU, of bf16, where each row of
/// all three lies at a multiple of 16 bytes. Depends on shapes, types and places in buffers alone. cuBLASLt was tried with such products
/// (decision 0025); its kernels may load 16 bytes of a bias, and no preference gives it their alignment (pull request 194497 of
/// pytorch/pytorch).
[[nodiscard]] bool adds_bias_in_product(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Returns true if the product dyᵀ · x of dy (rows, out) and x (rows, in) into weight_gradient (out, in) sums up dy's columns, which is the
/// gradient of the bias: on a GPU, of bf16 into fp32, if their rows are aligned so too and not empty. cuBLASLt writes such sums in the type
/// of the product; into bf16 they would be rounded once more than by bias_gradient().
[[nodiscard]] bool sums_columns_in_product(const Tensor& dy, const Tensor& x, const Tensor& weight_gradient);

/// x (rows, in) · Wᵀ + bias (out) -> (rows, out) of x's dtype, for weight (out, in). One product with `in_product` where
/// adds_bias_in_product(), which rounds once; else add_bias() runs after it.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, std::string_view name,
                            ProductAlgorithm algorithm = ProductAlgorithm::first, bool in_product = true);

/// weight_gradient (out, in) = or, with `accumulate`, += dyᵀ · x, and bias_gradient (out) += the sums of dy's columns, by one product and
/// an addition of (out) values; sums_columns_in_product() is true (assertion). The library overwrites the sums, and the gradient of a bias
/// holds those of other microbatches or zeros, so they go through scratch of (out) fp32, as Transformer Engine has it
/// (pytorch/csrc/extensions/gemm.cpp).
void linear_gradients(const Tensor& dy, const Tensor& x, const Tensor& weight_gradient, bool accumulate, const Tensor& bias_gradient,
                      ProductAlgorithm algorithm = ProductAlgorithm::first);

}  // namespace mgplan::model
