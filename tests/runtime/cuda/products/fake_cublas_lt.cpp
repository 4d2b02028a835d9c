#include "tests/runtime/cuda/products/fake_cublas_lt.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

namespace mgplan {

tests::FakeCublasLt tests::fake_cublas_lt;

}  // namespace mgplan

using mgplan::tests::fake_cublas_lt;

namespace {

/// Any of the library's descriptions; of preferences the largest workspace, of matrices their sizes, of products their epilogue.
struct Description {
    std::uint64_t workspace_bytes = 0;
    std::uint64_t rows = 0, columns = 0;
    mgplan::tests::FakeEpilogue epilogue;
};

template <class Handle>
cublasStatus_t make(Handle* handle) {
    ++fake_cublas_lt.descriptions;
    *handle = reinterpret_cast<Handle>(new Description);
    return CUBLAS_STATUS_SUCCESS;
}
template <class Handle>
cublasStatus_t end(Handle handle) {
    --fake_cublas_lt.descriptions;
    delete reinterpret_cast<Description*>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

double& time_of(cudaEvent_t event) {
    return *reinterpret_cast<double*>(event);
}

}  // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return make(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return end(handle);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t /*compute*/, cudaDataType_t /*scale*/) {
    return make(made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
    return end(made);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
    auto& epilogue = reinterpret_cast<Description*>(made)->epilogue;
    const auto take = [&](auto& into) {
        EXPECT_EQ(bytes, sizeof(into));
        std::memcpy(&into, value, sizeof(into));
    };
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) take(epilogue.kind);
    if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) take(epilogue.type);
    if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) take(epilogue.vector);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType /*type*/, uint64_t rows, uint64_t columns,
                                          int64_t pitch) {
    EXPECT_GE(pitch, static_cast<std::int64_t>(rows)) << "a column has room";
    const cublasStatus_t status = make(made);
    reinterpret_cast<Description*>(*made)->rows = rows;
    reinterpret_cast<Description*>(*made)->columns = columns;
    return status;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
    return end(made);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t /*made*/, cublasLtMatrixLayoutAttribute_t /*attribute*/,
                                                const void* /*value*/, size_t /*bytes*/) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
    return make(made);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
    return end(made);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        std::memcpy(&reinterpret_cast<Description*>(made)->workspace_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
    fake_cublas_lt.asked.push_back(most);
    fake_cublas_lt.asked_with = reinterpret_cast<Description*>(product)->epilogue;
    const auto *const sum = reinterpret_cast<Description*>(d), *const first = reinterpret_cast<Description*>(a);
    fake_cublas_lt.asked_of.push_back({sum->rows, sum->columns, first->rows, first->columns});
    *found = 0;
    for (std::size_t i = 0; i < fake_cublas_lt.candidates.size() && *found < most; ++i) {
        const std::size_t bytes = fake_cublas_lt.candidates[i].workspace_bytes;
        if (bytes > reinterpret_cast<Description*>(preference)->workspace_bytes) continue;
        cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
        result = {};
        result.algo.data[0] = i;
        result.workspaceSize = bytes;
        result.state = CUBLAS_STATUS_SUCCESS;
    }
    return *found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*product*/, cublasLtMatrixLayout_t /*a*/,
                                       cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
    result->workspaceSize = fake_cublas_lt.candidates.at(algorithm->data[0]).workspace_bytes;
    return fake_cublas_lt.refuses_checks ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product, const void* /*alpha*/, const void* /*a*/,
                              cublasLtMatrixLayout_t /*a_layout*/, const void* /*b*/, cublasLtMatrixLayout_t /*b_layout*/, const void* beta,
                              const void* c, cublasLtMatrixLayout_t /*c_layout*/, void* d, cublasLtMatrixLayout_t /*d_layout*/,
                              const cublasLtMatmulAlgo_t* algorithm, void* /*workspace*/, size_t workspace_bytes, cudaStream_t /*stream*/) {
    const std::size_t index = algorithm->data[0];
    const auto& candidate = fake_cublas_lt.candidates.at(index);
    EXPECT_EQ(c, d) << "in place";
    EXPECT_LE(candidate.workspace_bytes, workspace_bytes);
    if (candidate.fails) {
        fake_cublas_lt.last_failed = true;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    fake_cublas_lt.launches.push_back({index, *static_cast<const float*>(beta) != 0});
    fake_cublas_lt.epilogues.push_back(reinterpret_cast<Description*>(product)->epilogue);
    fake_cublas_lt.now += candidate.seconds;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t /*status*/) {
    return "CUBLAS_STATUS";
}
const char* cublasLtGetStatusString(cublasStatus_t /*status*/) {
    return "a failure";
}
cudaError_t cudaGetLastError() {
    const bool failed = fake_cublas_lt.last_failed;
    fake_cublas_lt.last_failed = false;
    return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t /*error*/) {
    return "cudaError";
}
const char* cudaGetErrorString(cudaError_t /*error*/) {
    return "an error";
}
cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
    *status = fake_cublas_lt.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(cudaEventDefault)) << "it tells the time";
    ++fake_cublas_lt.descriptions;
    *event = reinterpret_cast<cudaEvent_t>(new double(0));
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    --fake_cublas_lt.descriptions;
    delete &time_of(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t /*stream*/) {
    EXPECT_FALSE(fake_cublas_lt.capturing);
    time_of(event) = fake_cublas_lt.now;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
    EXPECT_FALSE(fake_cublas_lt.capturing);
    ++fake_cublas_lt.waits;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = static_cast<float>(1e3 * (time_of(end) - time_of(begin)));
    return cudaSuccess;
}
}
