#pragma once
// Matrix products of cuBLASLt.

#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// fp8 and bf16 add in fp32, fp32 in fp32 (TF32 is never used), fp64 in fp64. The algorithm of a shape is the heuristic's first
/// choice, asked for once and kept, so a shape's result does not depend on timing. One thread, one stream.
class CublasLt {
public:
    explicit CublasLt(cudaStream_t stream);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    void multiply(const Gemm& gemm);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::runtime::cuda
