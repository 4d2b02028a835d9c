#include "runtime/cuda/cudnn_attention.hpp"

namespace mgplan::runtime::cuda {

std::unique_ptr<FusedLibrary> make_cudnn_attention(cudaStream_t /*stream*/, int /*card*/) {
    return nullptr;
}

std::string try_cudnn_attention(const FusedShape& /*shape*/, std::int64_t /*workspace_bytes*/) {
    return "this build has no cuDNN";
}

std::string cudnn_device_properties(int /*ordinal*/) {
    return {};
}

std::string cudnn_version() {
    return {};
}

}  // namespace mgplan::runtime::cuda
