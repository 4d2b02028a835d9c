#pragma once
// Matrix products. 16-bit inputs accumulate in fp32 and are rounded once.

#include "model/device/tensor.hpp"
#include "model/ops/product_algorithm.hpp"

namespace mgplan::model {

/// Which operand is read transposed.
struct Transposes {
    bool a = false;
    bool b = false;
};

/// op(a) (m, k) · op(b) (k, n) -> (m, n) of a's dtype. Leading dimensions of a beyond two count as rows (not with
/// transposes.a). a and b of one dtype. 2mnk FLOPs. `bias`, (n) of a's dtype, is added to each row if it is defined; this requires
/// adds_bias_in_product() (model/ops/linear.hpp, whose functions work on all devices).
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Transposes transposes, std::string_view name,
                            ProductAlgorithm algorithm = ProductAlgorithm::first, const Tensor& bias = {});

/// out += op(a) · op(b); out may be fp32 where a and b are 16-bit (weight gradients into main gradients). `row_sums`, (m) of out's dtype,
/// are overwritten with the sums of op(a)'s rows if they are defined; this requires sums_columns_in_product().
void matmul_accumulate(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out,
                       ProductAlgorithm algorithm = ProductAlgorithm::first, const Tensor& row_sums = {});
/// out = op(a) · op(b), likewise.
void matmul_write(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out,
                  ProductAlgorithm algorithm = ProductAlgorithm::first, const Tensor& row_sums = {});

}  // namespace mgplan::model
