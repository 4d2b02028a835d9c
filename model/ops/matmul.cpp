#include "model/ops/matmul.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

struct Sizes {
    std::int64_t m, n, k;
};

Sizes sizes_of(const Tensor& a, const Tensor& b, Transposes transposes) {
    expect_float(a, "a of matmul");
    expect_dtype(b, a.dtype(), "b of matmul");
    expect_same_device(a, b);
    MGPLAN_ASSERT(a.shape().rank() == 2 || (a.shape().rank() > 2 && !transposes.a), "a has rows and columns");
    MGPLAN_ASSERT(b.shape().rank() == 2, "b has rows and columns");
    const std::int64_t rows = a.shape().rows(), columns = a.shape()[-1];
    const Sizes sizes{transposes.a ? columns : rows, transposes.b ? b.shape()[0] : b.shape()[1], transposes.a ? rows : columns};
    MGPLAN_ASSERT(sizes.k == b.shape()[transposes.b ? 1 : 0],
                  fmt::format("a {} and b {} share their inner size", a.shape().text(), b.shape().text()));
    return sizes;
}

Product product_of(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, const Sizes& sizes, bool accumulate,
                   ProductAlgorithm algorithm) {
    return {a, b, out, sizes.m, sizes.n, sizes.k, transposes, accumulate, algorithm};
}

void multiply_into(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, bool accumulate, ProductAlgorithm algorithm,
                   const Tensor& row_sums) {
    const Sizes sizes = sizes_of(a, b, transposes);
    expect_accumulator(out, a, "what a product is written or added to");
    expect_shape(out, {sizes.m, sizes.n}, "what a product is written or added to");
    Product product = product_of(a, b, transposes, out, sizes, accumulate, algorithm);
    if (row_sums.defined()) {
        expect_shape(row_sums, {sizes.m}, "sums of a product's rows");
        expect_dtype(row_sums, out.dtype(), "sums of a product's rows");
        expect_same_device(out, row_sums);
        product.row_sums = row_sums;
    }
    run_product(product);
}

}  // namespace

ProductScratch product_scratch(Device& device, Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
    ProductScratch scratch;
    if (bytes_of(dtype) < 4 && device.traits().kind == DeviceKind::cpu) {
        const std::int64_t rows = std::min(m, MatmulTile::rows), columns = std::min(n, MatmulTile::columns);
        const std::int64_t depth = std::min(k, MatmulTile::depth);
        scratch.a = device.empty({rows, depth}, Dtype::fp32, MemoryCategory::workspace, "matmul tile of a");
        scratch.b = device.empty({depth, columns}, Dtype::fp32, MemoryCategory::workspace, "matmul tile of b");
        scratch.out = device.empty({rows, columns}, Dtype::fp32, MemoryCategory::workspace, "matmul tile of the product");
    }
    scratch.workspace = take_scratch(device, matmul_workspace_bytes(device.traits()), "matmul workspace");
    return scratch;
}

void run_product(const Product& x) {
    Device& device = x.out.device();
    const double flops = 2.0 * static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k);
    device.report({"matmul",
                   flops,
                   total_bytes(x.a, x.b, x.bias) + (x.accumulate ? x.out.bytes() : 0),
                   total_bytes(x.out, x.row_sums),
                   1,
                   {x.m, x.n, x.k, x.transposes.a, x.transposes.b, x.accumulate, x.scale_a.defined() ? Dtype::fp8 : x.a.dtype()}});
    if (x.out.elements() == 0) return;
    const ProductScratch scratch = product_scratch(device, x.a.dtype(), x.m, x.n, x.k);
    if (!device.computes()) return;
    device.kernels().matmul(device, {x.a,
                                     x.b,
                                     x.out,
                                     x.m,
                                     x.n,
                                     x.k,
                                     x.transposes.a,
                                     x.transposes.b,
                                     x.accumulate,
                                     scratch.a,
                                     scratch.b,
                                     scratch.out,
                                     scratch.workspace,
                                     x.scale_a,
                                     x.scale_b,
                                     x.scaling_a,
                                     x.scaling_b,
                                     x.algorithm,
                                     x.bias,
                                     x.row_sums});
}

Tensor matmul(const Tensor& a, const Tensor& b, Transposes transposes, std::string_view name, ProductAlgorithm algorithm,
              const Tensor& bias) {
    const Sizes sizes = sizes_of(a, b, transposes);
    Tensor out = a.device().empty({sizes.m, sizes.n}, a.dtype(), MemoryCategory::activations, name);
    Product product = product_of(a, b, transposes, out, sizes, false, algorithm);
    if (bias.defined()) {
        expect_shape(bias, {sizes.n}, "bias of a product");
        expect_dtype(bias, out.dtype(), "bias of a product");
        expect_same_device(out, bias);
        product.bias = bias;
    }
    run_product(product);
    return out;
}

void matmul_accumulate(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, ProductAlgorithm algorithm,
                       const Tensor& row_sums) {
    multiply_into(a, b, transposes, out, true, algorithm, row_sums);
}

void matmul_write(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, ProductAlgorithm algorithm,
                  const Tensor& row_sums) {
    multiply_into(a, b, transposes, out, false, algorithm, row_sums);
}

}  // namespace mgplan::model
