#pragma once
// Matrix products of cuBLASLt.

#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// fp8 and bf16 add in fp32, fp32 in fp32 (TF32 is never used), fp64 in fp64. The algorithm of a shape is found once and kept: the
/// heuristic's first choice, so that the result does not depend on timing. With `times_candidates` large products that allow it
/// (product_choice.hpp) are run with each of the heuristic's first choices when they are first met, two dozen launches, and keep the
/// fastest (c holds its result); experts' products take the first choice for a number of rows near theirs. Those that add to c take the
/// choice of the one that overwrote it; none is timed while the stream is captured. One thread, one stream.
class CublasLt {
public:
    /// The stream must outlive it.
    explicit CublasLt(cudaStream_t stream, bool times_candidates = false);
    ~CublasLt();
    CublasLt(const CublasLt&) = delete;
    CublasLt& operator=(const CublasLt&) = delete;

    void multiply(const Gemm& gemm);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::runtime::cuda
