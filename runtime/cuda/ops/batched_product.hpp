#pragma once
// Products of many small matrices that kernels of an op hand to a library: those of a scan and of a delta rule.

#include <cstdint>
#include <type_traits>

#include "model/ops/checks.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// c (m, n) = alpha · op(a) · op(b) + beta · c for each of a batch. Matrices have no gaps in their rows; a stride is from one to the next,
/// in values, and 0 if they are contiguous.
struct BatchedProduct {
    bool transpose_a = false, transpose_b = false;
    std::int64_t m = 0, n = 0, k = 0;
    double alpha = 1, beta = 0;
    std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

/// Returns the product of `count` matrices of `dtype`. The result has that type too, or is a sum of the statistics' type. No workspace.
template <class Element, class Result>
[[nodiscard]] Gemm batched_gemm(const BatchedProduct& product, Dtype dtype, const Element* a, const Element* b, Result* c,
                                std::int64_t count) {
    const auto stride = [](std::int64_t wanted, std::int64_t size) { return wanted != 0 ? wanted : size; };
    Gemm gemm;
    gemm.transpose_a = product.transpose_a;
    gemm.transpose_b = product.transpose_b;
    gemm.m = product.m;
    gemm.n = product.n;
    gemm.k = product.k;
    gemm.alpha = product.alpha;
    gemm.beta = product.beta;
    gemm.input = dtype;
    gemm.output = std::is_same_v<Result, Element> ? dtype : model::statistics_dtype(dtype);
    gemm.a = a;
    gemm.a_pitch = product.transpose_a ? product.m : product.k;
    gemm.a_stride = stride(product.a_stride, product.m * product.k);
    gemm.b = b;
    gemm.b_pitch = product.transpose_b ? product.k : product.n;
    gemm.b_stride = stride(product.b_stride, product.k * product.n);
    gemm.c = c;
    gemm.c_pitch = product.n;
    gemm.c_stride = stride(product.c_stride, product.m * product.n);
    gemm.batch = count;
    return gemm;
}

}  // namespace mgplan::runtime::cuda
