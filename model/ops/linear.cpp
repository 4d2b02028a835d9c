#include "model/ops/linear.hpp"

#include <cstdint>

#include "model/device/device.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/checks.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {
namespace {

/// Storages begin at multiples of it.
constexpr std::int64_t kAlignment = 16;

bool has_epilogues(const Tensor& operand) {
    return operand.device().traits().kind == DeviceKind::cuda && operand.dtype() == Dtype::bf16;
}

template <class... Tensors>
bool rows_are_aligned(const Tensors&... tensors) {
    return (((tensors.first_element() | tensors.shape()[-1]) * bytes_of(tensors.dtype()) % kAlignment == 0) && ...);
}

}  // namespace

bool adds_bias_in_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return has_epilogues(x) && rows_are_aligned(x, weight, bias);
}

bool sums_columns_in_product(const Tensor& dy, const Tensor& x, const Tensor& weight_gradient) {
    return has_epilogues(dy) && weight_gradient.dtype() == Dtype::fp32 && rows_are_aligned(dy, x, weight_gradient) && dy.elements() > 0;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, std::string_view name, ProductAlgorithm algorithm,
              bool in_product) {
    if (in_product && adds_bias_in_product(x, weight, bias)) return matmul(x, weight, {.b = true}, name, algorithm, bias);
    Tensor y = matmul(x, weight, {.b = true}, name, algorithm);
    add_bias(y, bias);
    return y;
}

void linear_gradients(const Tensor& dy, const Tensor& x, const Tensor& weight_gradient, bool accumulate, const Tensor& bias_gradient,
                      ProductAlgorithm algorithm) {
    MGPLAN_ASSERT(sums_columns_in_product(dy, x, weight_gradient), "the product sums up columns");
    const Tensor sums = dy.device().empty({dy.shape()[-1]}, weight_gradient.dtype(), MemoryCategory::workspace, "column sums of a product");
    const auto multiply = accumulate ? matmul_accumulate : matmul_write;
    multiply(dy, x, {.a = true}, weight_gradient, algorithm, sums);
    add(sums, bias_gradient);
}

}  // namespace mgplan::model
