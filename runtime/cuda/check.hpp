#pragma once
// Every call into CUDA's libraries goes through MGPLAN_CUDA, MGPLAN_CUBLAS or MGPLAN_CUDNN: a failure throws RunError with
// rank, call, place and the library's own words.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace mgplan::runtime::cuda {

/// Sets the rank whose work this thread does, with which messages begin; -1 before it is known.
void name_rank_of_this_thread(int rank);
[[nodiscard]] int rank_of_this_thread();

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);
[[noreturn]] void throw_cublas_error(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace mgplan::runtime::cuda

#define MGPLAN_CUDA(call)                                                                            \
    do {                                                                                             \
        const cudaError_t mgplan_cuda_error = (call);                                                \
        if (mgplan_cuda_error != cudaSuccess) {                                                      \
            ::mgplan::runtime::cuda::throw_cuda_error(mgplan_cuda_error, #call, __FILE__, __LINE__); \
        }                                                                                            \
    } while (false)

#define MGPLAN_CUBLAS(call)                                                                               \
    do {                                                                                                  \
        const cublasStatus_t mgplan_cublas_status = (call);                                               \
        if (mgplan_cublas_status != CUBLAS_STATUS_SUCCESS) {                                              \
            ::mgplan::runtime::cuda::throw_cublas_error(mgplan_cublas_status, #call, __FILE__, __LINE__); \
        }                                                                                                 \
    } while (false)
