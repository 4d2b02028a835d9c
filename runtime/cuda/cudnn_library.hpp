#pragma once
// cuDNN's functions, taken from the library when they are first needed: the CUDA module loads where there is none.

#include <cudnn.h>

#include <string>

#include "runtime/cuda/lazy_library.hpp"

namespace mgplan::runtime::cuda {

// clang-format off
#define MGPLAN_CUDNN_FUNCTIONS(each) \
    each(cudnnBackendCreateDescriptor) each(cudnnBackendDestroyDescriptor) each(cudnnBackendExecute) \
    each(cudnnBackendFinalize) each(cudnnBackendGetAttribute) each(cudnnBackendSetAttribute) each(cudnnCreate) \
    each(cudnnDestroy) each(cudnnGetErrorString) each(cudnnGetLastErrorString) each(cudnnGetVersion) each(cudnnSetStream)
// clang-format on

MGPLAN_LIBRARY_FUNCTIONS(CudnnFunctions, MGPLAN_CUDNN_FUNCTIONS);

/// Reason why cuDNN cannot be used here; empty if it can. Any thread.
[[nodiscard]] const std::string& cudnn_unavailable();

/// Requires that cudnn_unavailable() is empty.
[[nodiscard]] const CudnnFunctions& cudnn();

}  // namespace mgplan::runtime::cuda
