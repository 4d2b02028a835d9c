#include "runtime/cuda/cublas_product.hpp"

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {
namespace {

cudaDataType_t cublas_type(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return CUDA_R_64F;
        case Dtype::fp32:
            return CUDA_R_32F;
        case Dtype::bf16:
            return CUDA_R_16BF;
        case Dtype::fp8:
            return CUDA_R_8F_E4M3;
        case Dtype::e5m2:
            return CUDA_R_8F_E5M2;
        default:
            break;
    }
    MGPLAN_ASSERT(false, "a GPU multiplies fp64, fp32, bf16 and fp8");
    return CUDA_R_32F;
}

bool in_fp8(const Gemm& x) {
    return x.a_scale != nullptr;
}

Dtype type_of_b(const Gemm& x) {
    return in_fp8(x) ? x.other_input : x.input;
}

/// The largest power of two up to 256 that divides the address of every matrix of a batch, which lie `stride` values apart.
std::uint32_t alignment(const void* memory, std::int64_t batch, std::int64_t stride, Dtype dtype) {
    const std::uint64_t apart = batch > 1 ? static_cast<std::uint64_t>(stride * bytes_of(dtype)) : 0;
    const std::uint64_t bits = address(memory) | apart | 256U;
    return static_cast<std::uint32_t>(bits & (~bits + 1));
}

std::uint32_t alignment_of_a(const Gemm& x) {
    return alignment(x.a, x.batch, x.a_stride, x.input);
}

std::uint32_t alignment_of_b(const Gemm& x) {
    return alignment(x.b, x.batch, x.b_stride, type_of_b(x));
}

std::uint32_t alignment_of_c(const Gemm& x) {
    return alignment(x.c, x.batch, x.c_stride, x.output);
}

/// D is (n, m) there: a bias (n) is one for each row of it, and op(a)'s rows, which are B's columns, are summed up along k.
cublasLtEpilogue_t epilogue_of(const Gemm& x) {
    if (x.bias != nullptr) return CUBLASLT_EPILOGUE_BIAS;
    return x.row_sums != nullptr ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT;
}

#if CUBLAS_VERSION >= 120900
cublasLtMatmulMatrixScale_t mode_of(model::Fp8Scaling scaling) {
    switch (scaling) {
        case model::Fp8Scaling::tensor:
            break;
        case model::Fp8Scaling::vectors_of_128:
            return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
        case model::Fp8Scaling::squares_of_128:
            return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
        case model::Fp8Scaling::vectors_of_32:
            return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    }
    return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}
#endif

}  // namespace

ProductKey key_of(const Gemm& x) {
    return {x.transpose_a,
            x.transpose_b,
            x.m,
            x.n,
            x.k,
            x.beta != 0,
            static_cast<std::int64_t>(x.input),
            static_cast<std::int64_t>(type_of_b(x)),
            static_cast<std::int64_t>(x.output),
            x.a_pitch,
            x.a_stride,
            x.b_pitch,
            x.b_stride,
            x.c_pitch,
            x.c_stride,
            x.batch,
            x.workspace_bytes,
            alignment_of_a(x) | (std::int64_t{alignment_of_b(x)} << 20),
            alignment_of_c(x),
            static_cast<std::int64_t>(x.a_scaling),
            static_cast<std::int64_t>(x.b_scaling),
            epilogue_of(x)};
}

/// Forwards may, as Transformer Engine has it (common/recipe/__init__.py, Float8CurrentScaling: use_split_accumulator); products of
/// gradients, of which one operand is e5m2 or which add to a sum, may not. With blocks none may (Float8BlockScaling there).
bool adds_fast(const Gemm& x) {
    const bool forward = x.input == Dtype::fp8 && x.other_input == Dtype::fp8 && x.beta == 0;
    return in_fp8(x) && forward && x.a_scaling == model::Fp8Scaling::tensor;
}

/// A row-major (rows, columns) matrix is a column-major (columns, rows) one.
CublasProduct::Layout CublasProduct::layout(Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t pitch, std::int64_t batch,
                                            std::int64_t stride) {
    Layout made;
    MGPLAN_CUBLAS(cublasLtMatrixLayoutCreate(made.place(), cublas_type(dtype), static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), pitch));
    const auto count = static_cast<std::int32_t>(batch);
    MGPLAN_CUBLAS(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    MGPLAN_CUBLAS(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
    return made;
}

/// The operands have changed places, and their scales have too.
void CublasProduct::set_scales(const Gemm& x) const {
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &x.b_scale, sizeof(x.b_scale)));
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x.a_scale, sizeof(x.a_scale)));
}

/// The modes of scales of blocks have changed places too.
void CublasProduct::set_scale_modes(const Gemm& x) const {
    if (x.a_scaling == model::Fp8Scaling::tensor) return;
#if CUBLAS_VERSION >= 120900
    const cublasLtMatmulMatrixScale_t first = mode_of(x.b_scaling), second = mode_of(x.a_scaling);
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &first, sizeof(first)));
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &second, sizeof(second)));
#else
    throw RunError(
        fmt::format("rank {}: products in fp8 with a scale for each block need cuBLAS of CUDA 12.9 or later, and this program was "
                    "built with that of CUDA {}.{}; build it with a newer CUDA, or make a plan with --precision fp8-current",
                    rank_of_this_thread(), CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
#endif
}

void CublasProduct::set_epilogue(const Gemm& x) const {
    const cublasLtEpilogue_t epilogue = epilogue_of(x);
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    MGPLAN_ASSERT((x.bias == nullptr || x.row_sums == nullptr) && x.batch == 1, "a product has one epilogue, and one vector for it");
    const auto type = static_cast<std::int32_t>(cublas_type(x.output));
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)));
    set_bias(x);
}

/// Set in every run, because products with one description differ in their vectors. No preference gives its alignment, and kernels may
/// load 16 bytes of it.
void CublasProduct::set_bias(const Gemm& x) const {
    const void* const vector = x.bias != nullptr ? x.bias : x.row_sums;
    if (vector == nullptr) return;
    MGPLAN_ASSERT(address(vector) % 16 == 0, "biases and their sums lie at multiples of 16 bytes");
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector)));
}

CublasProduct::CublasProduct(const Gemm& x) {
    const bool wide = x.input == Dtype::fp64;
    MGPLAN_CUBLAS(
        cublasLtMatmulDescCreate(operation_.place(), wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F));
    // cᵀ = op(b)ᵀ · op(a)ᵀ: cuBLAS sees every row-major matrix transposed, so the operands change places and keep their ops.
    const cublasOperation_t first = x.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = x.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
    if (in_fp8(x)) {
        const std::int8_t fast = adds_fast(x) ? 1 : 0;
        MGPLAN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)));
        set_scales(x);
        set_scale_modes(x);
    }
    set_epilogue(x);
    a_ = layout(type_of_b(x), x.transpose_b ? x.n : x.k, x.transpose_b ? x.k : x.n, x.b_pitch, x.batch, x.b_stride);
    b_ = layout(x.input, x.transpose_a ? x.k : x.m, x.transpose_a ? x.m : x.k, x.a_pitch, x.batch, x.a_stride);
    c_ = layout(x.output, x.m, x.n, x.c_pitch, x.batch, x.c_stride);
}

CublasProduct::Preference CublasProduct::preference(const Gemm& x) {
    Preference made;
    MGPLAN_CUBLAS(cublasLtMatmulPreferenceCreate(made.place()));
    const auto most = static_cast<std::uint64_t>(x.workspace_bytes);
    MGPLAN_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most)));
    for (const auto& [attribute, bytes] : {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of_b(x)},
                                           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of_a(x)},
                                           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of_c(x)},
                                           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of_c(x)}}) {
        MGPLAN_CUBLAS(cublasLtMatmulPreferenceSetAttribute(made, attribute, &bytes, sizeof(bytes)));
    }
    return made;
}

std::vector<cublasLtMatmulAlgo_t> CublasProduct::candidates(cublasLtHandle_t handle, const Gemm& x, int most) const {
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation_, a_, b_, c_, c_, preference(x), most, results.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) MGPLAN_CUBLAS(status);
    results.resize(static_cast<std::size_t>(found));
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (const auto& result : results) {
        if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
    }
    return algorithms;
}

bool CublasProduct::takes(cublasLtHandle_t handle, const Gemm& x, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, operation_, a_, b_, c_, c_, &algorithm, &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= static_cast<std::size_t>(x.workspace_bytes);
}

cublasStatus_t CublasProduct::run(cublasLtHandle_t handle, const Gemm& x, const cublasLtMatmulAlgo_t& algorithm,
                                  cudaStream_t stream) const {
    if (in_fp8(x)) set_scales(x);
    set_bias(x);
    const float alpha = static_cast<float>(x.alpha), beta = static_cast<float>(x.beta);
    const bool wide = x.input == Dtype::fp64;
    const void* const factor = wide ? static_cast<const void*>(&x.alpha) : &alpha;
    const void* const before = wide ? static_cast<const void*>(&x.beta) : &beta;
    // In place: the same layout object for what is added to and what is written.
    return cublasLtMatmul(handle, operation_, factor, x.b, a_, x.a, b_, before, x.c, c_, x.c, c_, &algorithm, x.workspace,
                          static_cast<std::size_t>(x.workspace_bytes), stream);
}

}  // namespace mgplan::runtime::cuda
