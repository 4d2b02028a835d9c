#pragma once
// Flash attention of cuDNN.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Causal attention of bf16 through cuDNN's graph API. A plan is built once for each shape and kept (compiling one takes up
/// to a second or two); a shape that no engine takes, or that wants more workspace than it is given, is refused, and the
/// refusal is kept too. One thread, one stream. nullptr in a build without cuDNN.
[[nodiscard]] std::unique_ptr<FusedLibrary> make_cudnn_attention(cudaStream_t stream);

/// Version of the cuDNN in use, "9.19.0"; empty in a build without.
[[nodiscard]] std::string cudnn_version();

}  // namespace mgplan::runtime::cuda
