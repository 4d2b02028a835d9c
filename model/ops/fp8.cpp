#include "model/ops/fp8.hpp"

#include <vector>

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

void expect_codes(const Tensor& codes, std::string_view what) {
    MGPLAN_ASSERT(codes.defined() && (codes.dtype() == Dtype::fp8 || codes.dtype() == Dtype::e5m2), fmt::format("{} are of fp8", what));
}

void expect_scale(const Tensor& scale) {
    expect_dtype(scale, Dtype::fp32, "the scale of fp8");
    expect_shape(scale, {kFp8ScaleElements}, "the scale of fp8");
}

void expect_cast(const Tensor& x, const Fp8Tensor& into) {
    expect_float(x, "x of quantise");
    MGPLAN_ASSERT(into.codes.defined() || into.turned.defined(), "a cast writes codes");
    if (into.codes.defined()) {
        expect_codes(into.codes, "what quantise writes");
        expect_elements(into.codes, x.elements(), "what quantise writes");
    }
    if (into.turned.defined()) {
        MGPLAN_ASSERT(x.shape().rank() == 2, "what is turned has rows and columns");
        expect_codes(into.turned, "turned codes");
        expect_shape(into.turned, {x.shape()[1], x.shape()[0]}, "turned codes");
        if (into.codes.defined()) expect_dtype(into.turned, into.codes.dtype(), "turned codes");
    }
    expect_scale(into.scale);
    expect_same_device(x, into.codes, into.scale, into.turned);
}

struct Fp8Sizes {
    std::int64_t m, n, k;
};

Fp8Sizes fp8_sizes_of(const Fp8Tensor& a, const Fp8Tensor& b) {
    for (const Fp8Tensor* operand : {&a, &b}) {
        expect_codes(operand->codes, "operands of fp8_matmul");
        expect_scale(operand->scale);
        MGPLAN_ASSERT(operand->codes.shape().rank() == 2, "operands of fp8_matmul have rows and columns");
    }
    MGPLAN_ASSERT(a.codes.dtype() == Dtype::fp8 || b.codes.dtype() == Dtype::fp8, "one operand of fp8_matmul is e4m3");
    expect_same_device(a.codes, a.scale, b.codes, b.scale);
    MGPLAN_ASSERT(a.codes.shape()[1] == b.codes.shape()[1],
                  fmt::format("a {} and b {} share their inner size", a.codes.shape().text(), b.codes.shape().text()));
    return {a.codes.shape()[0], b.codes.shape()[0], a.codes.shape()[1]};
}

void multiply_codes(const Fp8Tensor& a, const Fp8Tensor& b, const Tensor& out, const Fp8Sizes& sizes, bool accumulate,
                    ProductAlgorithm algorithm) {
    run_product(
        {a.codes, b.codes, out, sizes.m, sizes.n, sizes.k, {.b = true}, accumulate, algorithm, a.scale.slice(1, 2), b.scale.slice(1, 2)});
}

}  // namespace

void find_largest(const Tensor& x, const Tensor& scale) {
    expect_float(x, "x of find_largest");
    expect_scale(scale);
    expect_same_device(x, scale);
    Device& device = x.device();
    device.report({"largest_magnitude", static_cast<double>(x.elements()), x.bytes(), bytes_of(Dtype::fp32), 2});
    if (device.computes()) device.kernels().largest(device, {x, scale.slice(0, 1), x.elements()});
}

Fp8Tensor empty_codes(const Tensor& x, Dtype dtype, const Tensor& scale, Fp8Copies copies, std::string_view name) {
    Fp8Tensor made{{}, scale, {}};
    const auto empty = [&](const Shape& shape) { return x.device().empty(shape, dtype, MemoryCategory::activations, name); };
    if (copies != Fp8Copies::turned) made.codes = empty(x.shape());
    if (copies == Fp8Copies::rows) return made;
    MGPLAN_ASSERT(x.shape().rank() == 2, "what is turned has rows and columns");
    made.turned = empty({x.shape()[1], x.shape()[0]});
    return made;
}

void quantise(const Tensor& x, const Fp8Tensor& into) {
    expect_cast(x, into);
    Device& device = x.device();
    device.report({"cast_to_fp8", static_cast<double>(x.elements()), x.bytes(), total_bytes(into.codes, into.turned)});
    if (!device.computes()) return;
    QuantiseArguments arguments{x, into.scale.slice(0, 1), into.codes, into.scale.slice(1, 2), x.elements()};
    if (into.turned.defined()) {
        arguments.turned = into.turned;
        arguments.rows = x.shape()[0];
        arguments.columns = x.shape()[1];
    }
    device.kernels().quantise(device, arguments);
}

void quantise_all(std::span<const Fp8Cast> casts) {
    if (casts.empty()) return;
    Device& device = casts.front().x.device();
    OpRecord record{"cast_to_fp8"};
    std::vector<QuantiseArguments> arrays;
    for (const auto& [x, into] : casts) {
        expect_cast(x, into);
        expect_same_device(casts.front().x, x);
        expect_dtype(x, casts.front().x.dtype(), "arrays of one cast");
        MGPLAN_ASSERT(!into.turned.defined(), "many arrays are cast as they lie");
        expect_dtype(into.codes, Dtype::fp8, "codes of many arrays");
        record.flops += static_cast<double>(x.elements());
        record.bytes_read += x.bytes();
        record.bytes_written += into.codes.bytes();
        if (x.elements() > 0) arrays.push_back({x, into.scale.slice(0, 1), into.codes, into.scale.slice(1, 2), x.elements()});
    }
    record.launches = launches_for_arrays(std::ssize(arrays));
    device.report(record);
    if (device.computes() && !arrays.empty()) device.kernels().quantise_arrays(device, {arrays.data(), std::ssize(arrays)});
}

Tensor transpose_codes(const Tensor& codes) {
    expect_codes(codes, "what is transposed");
    MGPLAN_ASSERT(codes.shape().rank() == 2, "what is transposed has rows and columns");
    const Shape shape{codes.shape()[1], codes.shape()[0]};
    Tensor transposed = codes.device().empty(shape, codes.dtype(), MemoryCategory::activations, "transposed codes");
    transpose_codes(codes, transposed);
    return transposed;
}

void transpose_codes(const Tensor& codes, const Tensor& into) {
    expect_codes(codes, "what is transposed");
    MGPLAN_ASSERT(codes.shape().rank() == 2, "what is transposed has rows and columns");
    const std::int64_t rows = codes.shape()[0], columns = codes.shape()[1];
    MGPLAN_ASSERT(into.shape().rank() == 2 && into.shape()[0] == columns && into.shape()[1] >= rows,
                  fmt::format("transposed codes {} have place for {}", into.shape().text(), codes.shape().text()));
    expect_dtype(into, codes.dtype(), "transposed codes");
    expect_same_device(codes, into);
    Device& device = codes.device();
    device.report({"transpose_codes", 0, codes.bytes(), into.bytes()});
    if (device.computes() && into.elements() > 0) device.kernels().transpose_bytes(device, {codes, into, rows, columns, into.shape()[1]});
}

Tensor fp8_matmul(const Fp8Tensor& a, const Fp8Tensor& b, Dtype out, std::string_view name, ProductAlgorithm algorithm) {
    const Fp8Sizes sizes = fp8_sizes_of(a, b);
    Tensor product = a.codes.device().empty({sizes.m, sizes.n}, out, MemoryCategory::activations, name);
    expect_float(product, "the product of fp8_matmul");
    multiply_codes(a, b, product, sizes, false, algorithm);
    return product;
}

void fp8_matmul_accumulate(const Fp8Tensor& a, const Fp8Tensor& b, const Tensor& out, ProductAlgorithm algorithm) {
    const Fp8Sizes sizes = fp8_sizes_of(a, b);
    expect_float(out, "the sum of fp8_matmul_accumulate");
    expect_shape(out, {sizes.m, sizes.n}, "the sum of fp8_matmul_accumulate");
    expect_same_device(out, a.codes);
    multiply_codes(a, b, out, sizes, true, algorithm);
}

void fp8_matmul_write(const Fp8Tensor& a, const Fp8Tensor& b, const Tensor& out, ProductAlgorithm algorithm) {
    const Fp8Sizes sizes = fp8_sizes_of(a, b);
    expect_float(out, "the result of fp8_matmul_write");
    expect_shape(out, {sizes.m, sizes.n}, "the result of fp8_matmul_write");
    expect_same_device(out, a.codes);
    multiply_codes(a, b, out, sizes, false, algorithm);
}

}  // namespace mgplan::model
