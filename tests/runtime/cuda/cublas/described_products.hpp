#pragma once
// What cuBLASLt is told of a product, read back from the descriptors that the module made with the real library, and whether its
// documentation has such a product. Stands in for the few functions of cuBLASLt that need a card.

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// A matrix as stored: columns first, from column to column so many elements.
struct DescribedMatrix {
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t pitch = 0, stride = 0;
    std::int32_t batch = 0;
    std::uint32_t alignment = 0;  ///< bytes, at least
};

/// In cuBLAS's terms: D (m, n) = op(A) · op(B) + C.
struct DescribedProduct {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t factors = CUDA_R_32F;  ///< of alpha and beta
    cublasOperation_t a_operation = CUBLAS_OP_N, b_operation = CUBLAS_OP_N;
    DescribedMatrix a, b, c, d;
    std::int32_t a_scaling = 0, b_scaling = 0;  ///< cublasLtMatmulMatrixScale_t
    const void *a_scale = nullptr, *b_scale = nullptr;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    std::int32_t vector_type = -1;  ///< of the bias or its gradient, cudaDataType_t; -1: not said
    const void* vector = nullptr;
    std::uint64_t workspace_bytes = 0;

    [[nodiscard]] std::uint64_t m() const { return d.rows; }
    [[nodiscard]] std::uint64_t n() const { return d.columns; }
    [[nodiscard]] std::uint64_t k() const { return a_operation == CUBLAS_OP_N ? a.columns : a.rows; }
};

/// Has CublasLt multiply, and says what it asked for. Throws RunError where the library refuses a descriptor.
[[nodiscard]] DescribedProduct described(const Gemm& gemm);

/// Why cuBLASLt is not documented to have such a product on a card of this architecture; empty where it is.
[[nodiscard]] std::string why_undocumented(const DescribedProduct& product, int architecture);

}  // namespace mgplan::runtime::cuda
