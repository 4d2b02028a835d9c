#include "tests/runtime/cuda/cublas/described_products.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/cuda/cublas_lt.hpp"

namespace mgplan::runtime::cuda {
namespace {

DescribedProduct last;  // asked for

template <class Value, class Descriptor, class Attribute>
Value told(cublasStatus_t (*get)(Descriptor, Attribute, void*, std::size_t, std::size_t*), Descriptor descriptor, Attribute attribute) {
    Value value{};
    std::size_t written = 0;
    if (get(descriptor, attribute, &value, sizeof(value), &written) != CUBLAS_STATUS_SUCCESS || written != sizeof(value))
        throw RunError(fmt::format("cuBLASLt does not tell attribute {} again", static_cast<int>(attribute)));
    return value;
}

DescribedMatrix matrix(cublasLtMatrixLayout_t layout, std::uint32_t alignment) {
    const auto get = [&]<class Value>(Value& into, cublasLtMatrixLayoutAttribute_t attribute) {
        into = told<Value>(cublasLtMatrixLayoutGetAttribute, layout, attribute);
    };
    DescribedMatrix made;
    std::uint32_t type = 0;
    get(type, CUBLASLT_MATRIX_LAYOUT_TYPE);
    made.type = static_cast<cudaDataType_t>(type);
    get(made.rows, CUBLASLT_MATRIX_LAYOUT_ROWS);
    get(made.columns, CUBLASLT_MATRIX_LAYOUT_COLS);
    get(made.pitch, CUBLASLT_MATRIX_LAYOUT_LD);
    get(made.stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
    get(made.batch, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
    made.alignment = alignment;
    return made;
}

std::uint64_t bytes_of_type(cudaDataType_t type) {
    switch (type) {
        case CUDA_R_64F:
            return 8;
        case CUDA_R_32F:
            return 4;
        case CUDA_R_16BF:
            return 2;
        default:
            return 1;
    }
}

bool is_fp8(cudaDataType_t type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/// The tables of types of cuBLAS's documentation, "cublasLtMatmul()", as far as A, B and what sums are made in go.
std::string why_not_these_types(const DescribedProduct& x) {
    using Types = std::tuple<cublasComputeType_t, cudaDataType_t, cudaDataType_t, cudaDataType_t, cudaDataType_t>;
    constexpr cublasComputeType_t kSingle = CUBLAS_COMPUTE_32F;
    static constexpr std::array<Types, 10> kTable{{{CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
                                                   {kSingle, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
                                                   {kSingle, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF},
                                                   {kSingle, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_32F},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_16BF},
                                                   {kSingle, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F}}};
    if (x.c.type != x.d.type) return "C and D are of two types";
    const Types asked{x.compute, x.factors, x.a.type, x.b.type, x.d.type};
    return std::ranges::find(kTable, asked) == kTable.end() ? "no table has these types" : "";
}

/// What cuBLAS's documentation, "Tensor Core Usage", lists for speed and "cublasLtMatmul()" requires of fp8.
std::string why_not_this_alignment(const DescribedProduct& x) {
    const auto whole = [](std::uint64_t elements, cudaDataType_t type) { return elements * bytes_of_type(type) % 16 == 0; };
    const auto of_matrix = [&](const DescribedMatrix& each) {
        return whole(static_cast<std::uint64_t>(each.pitch), each.type) && each.alignment >= 16;
    };
    if (!whole(x.a_operation == CUBLAS_OP_N ? x.m() : x.k(), x.a.type)) return "16 bytes do not divide a column of A";
    if (!whole(x.b_operation == CUBLAS_OP_N ? x.k() : x.n(), x.b.type)) return "16 bytes do not divide a column of B";
    if (!whole(x.m(), x.d.type)) return "16 bytes do not divide a column of D";
    if (!of_matrix(x.a) || !of_matrix(x.b) || !of_matrix(x.c) || !of_matrix(x.d)) return "pitches or addresses are not those of fp8";
    return "";
}

/// Which scales go together, on which cards, and whose rows 8 divides: Transformer Engine, common/gemm/cublaslt_gemm.cu
/// (CanonicalizeGemmInput, cublas_gemm), and its pull request 2157 for Blackwell; modes as cublasLt.h has them.
std::string why_not_these_scales(const DescribedProduct& x, int architecture) {
    if (x.a_scale == nullptr || x.b_scale == nullptr) return "fp8 without a scale";
    const auto is = [&](int a, int b) { return x.a_scaling == a && x.b_scaling == b; };
    if (is(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)) return "";
    if (address(x.a_scale) % 16 != 0 || address(x.b_scale) % 16 != 0) return "scales of blocks do not lie at multiples of 16 bytes";
#if CUBLAS_VERSION >= 120900
    if (is(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0))
        return architecture >= 100 ? "" : "vectors of 32 came with Blackwell";
    if (is(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) ||
        is(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) ||
        is(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)) {
        if (architecture != 90) return "blocks of 128 are Hopper's";
        const bool vectors_in_b = x.b_scaling == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
        return x.m() % 8 != 0 || (vectors_in_b && x.n() % 8 != 0) ? "8 does not divide the rows of scales" : "";
    }
#endif
    return "no such pair of scales";
}

/// The bias types of the same tables, of which this code uses those in which sums are made of bf16, and what is known beyond them: decision
/// 0025 (what the library takes) and kernels that load 16 bytes of the vector (pull request 194497 of pytorch/pytorch). The vector holds
/// one value for each row of D, or with the gradient of B's side for each of its columns.
std::string why_not_this_epilogue(const DescribedProduct& x) {
    if (x.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return x.vector == nullptr ? "" : "a vector for no epilogue";
    if (x.epilogue != CUBLASLT_EPILOGUE_BIAS && x.epilogue != CUBLASLT_EPILOGUE_BGRADB) return "an epilogue that is not used here";
    if (x.vector == nullptr) return "an epilogue without its vector";
    if (x.a.type != CUDA_R_16BF || x.b.type != CUDA_R_16BF) return "an epilogue of other types than bf16";
    if (x.vector_type != x.d.type) return "a bias of another type than D";
    if (x.epilogue == CUBLASLT_EPILOGUE_BIAS && x.d.type != CUDA_R_16BF) return "a bias beside a wide D";
    if (address(x.vector) % 16 != 0) return "a bias that lies at no multiple of 16 bytes";
    return x.d.batch == 1 ? "" : "an epilogue of many products";
}

std::string why_not_this_layout(const DescribedMatrix& x) {
    if (x.rows == 0 || x.columns == 0 || x.batch < 1) return "an empty matrix";
    if (x.pitch < static_cast<std::int64_t>(x.rows)) return "columns overlap";
    return "";
}

}  // namespace

DescribedProduct described(const Gemm& gemm) {
    CublasLt(nullptr, false).multiply(gemm);  // a new one, which knows no product yet
    return last;
}

std::string why_undocumented(const DescribedProduct& x, int architecture) {
    for (const DescribedMatrix* each : {&x.a, &x.b, &x.c, &x.d}) {
        if (std::string why = why_not_this_layout(*each); !why.empty()) return why;
    }
    if (std::string why = why_not_these_types(x); !why.empty()) return why;
    if (std::string why = why_not_this_epilogue(x); !why.empty()) return why;
    if (!is_fp8(x.a.type)) return "";
    if (architecture < 89) return "fp8 came with Ada and Hopper";
    if (architecture < 100 && (x.a_operation != CUBLAS_OP_T || x.b_operation != CUBLAS_OP_N))
        return "before Blackwell fp8 has A transposed and B not";
    if (x.a.batch != 1) return "many products in fp8 are not asked for here";
    if (std::string why = why_not_this_alignment(x); !why.empty()) return why;
    return why_not_these_scales(x, architecture);
}

void note_description(cublasLtMatmulDesc_t operation, const std::array<cublasLtMatrixLayout_t, 4>& layouts,
                      cublasLtMatmulPreference_t preference) {
    const auto operation_told = [&]<class Value>(Value& into, cublasLtMatmulDescAttributes_t attribute) {
        into = told<Value>(cublasLtMatmulDescGetAttribute, operation, attribute);
    };
    const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t attribute) {
        return told<std::uint32_t>(cublasLtMatmulPreferenceGetAttribute, preference, attribute);
    };
    DescribedProduct made;
    operation_told(made.compute, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
    operation_told(made.factors, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
    operation_told(made.a_operation, CUBLASLT_MATMUL_DESC_TRANSA);
    operation_told(made.b_operation, CUBLASLT_MATMUL_DESC_TRANSB);
    operation_told(made.a_scale, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
    operation_told(made.b_scale, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    operation_told(made.epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
    operation_told(made.vector_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
    operation_told(made.vector, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
#if CUBLAS_VERSION >= 120900
    operation_told(made.a_scaling, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
    operation_told(made.b_scaling, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
#endif
    made.a = matrix(layouts[0], aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
    made.b = matrix(layouts[1], aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
    made.c = matrix(layouts[2], aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES));
    made.d = matrix(layouts[3], aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
    made.workspace_bytes = told<std::uint64_t>(cublasLtMatmulPreferenceGetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
    last = made;
}

}  // namespace mgplan::runtime::cuda

// The functions that need a card. This program's own stand before the library's.
extern "C" {
cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
    static int stands_for_a_handle = 0;
    *handle = reinterpret_cast<cublasLtHandle_t>(&stands_for_a_handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t /*handle*/) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t operation,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                                           cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int /*most*/,
                                                           cublasLtMatmulHeuristicResult_t results[], int* found) {
    mgplan::runtime::cuda::note_description(operation, {a, b, c, d}, preference);
    results[0] = {};
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}
/// What is asked for experts' rounded rows serves no product here, so that each is described as it is.
cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*operation*/,
                                                    cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                                    cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                                    const cublasLtMatmulAlgo_t* /*algorithm*/,
                                                    cublasLtMatmulHeuristicResult_t* /*result*/) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*operation*/, const void* /*alpha*/,
                                           const void* /*a*/, cublasLtMatrixLayout_t /*a_layout*/, const void* /*b*/,
                                           cublasLtMatrixLayout_t /*b_layout*/, const void* /*beta*/, const void* /*c*/,
                                           cublasLtMatrixLayout_t /*c_layout*/, void* /*d*/, cublasLtMatrixLayout_t /*d_layout*/,
                                           const cublasLtMatmulAlgo_t* /*algorithm*/, void* /*workspace*/, std::size_t /*bytes*/,
                                           cudaStream_t /*stream*/) {
    return CUBLAS_STATUS_SUCCESS;
}
}
