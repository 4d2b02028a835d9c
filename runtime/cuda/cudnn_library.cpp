#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

const LibraryFunctions<CudnnFunctions>& loaded_cudnn() {
    static const LibraryFunctions<CudnnFunctions> opened("cuDNN", MGPLAN_LIBRARY_FILE("cudnn", CUDNN_MAJOR));
    return opened;
}

}  // namespace

const std::string& cudnn_unavailable() {
    return loaded_cudnn().unavailable();
}

const CudnnFunctions& cudnn() {
    return loaded_cudnn().functions();
}

}  // namespace mgplan::runtime::cuda
