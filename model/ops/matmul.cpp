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

void multiply(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, const Sizes& sizes, bool accumulate,
              ProductAlgorithm algorithm) {
    run_product({a, b, out, sizes.m, sizes.n, sizes.k, transposes, accumulate, algorithm});
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
                   total_bytes(x.a, x.b) + (x.accumulate ? x.out.bytes() : 0),
                   x.out.bytes(),
                   1,
                   {x.m, x.n, x.k, x.transposes.a, x.transposes.b, x.accumulate, x.scale_a.defined() ? Dtype::fp8 : x.a.dtype()}});
    if (x.out.elements() == 0) return;
    const ProductScratch scratch = product_scratch(device, x.a.dtype(), x.m, x.n, x.k);
    if (!device.computes()) return;
    device.kernels().matmul(device, {x.a, x.b, x.out, x.m, x.n, x.k, x.transposes.a, x.transposes.b, x.accumulate, scratch.a, scratch.b,
                                     scratch.out, scratch.workspace, x.scale_a, x.scale_b, x.scaling_a, x.scaling_b, x.algorithm});
}

Tensor matmul(const Tensor& a, const Tensor& b, Transposes transposes, std::string_view name, ProductAlgorithm algorithm) {
    const Sizes sizes = sizes_of(a, b, transposes);
    Tensor out = a.device().empty({sizes.m, sizes.n}, a.dtype(), MemoryCategory::activations, name);
    multiply(a, b, transposes, out, sizes, false, algorithm);
    return out;
}

void matmul_accumulate(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, ProductAlgorithm algorithm) {
    const Sizes sizes = sizes_of(a, b, transposes);
    expect_accumulator(out, a, "the sum of matmul_accumulate");
    expect_shape(out, {sizes.m, sizes.n}, "the sum of matmul_accumulate");
    multiply(a, b, transposes, out, sizes, true, algorithm);
}

void matmul_write(const Tensor& a, const Tensor& b, Transposes transposes, const Tensor& out, ProductAlgorithm algorithm) {
    const Sizes sizes = sizes_of(a, b, transposes);
    expect_accumulator(out, a, "the result of matmul_write");
    expect_shape(out, {sizes.m, sizes.n}, "the result of matmul_write");
    multiply(a, b, transposes, out, sizes, false, algorithm);
}

}  // namespace mgplan::model
