#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

const LibraryFunctions<CudnnFunctions>& cudnn() {
    static const LibraryFunctions<CudnnFunctions> opened("cuDNN", MGPLAN_LIBRARY_FILE("cudnn", CUDNN_MAJOR));
    return opened;
}

}  // namespace

const std::string& cudnn_unavailable() {
    return cudnn().unavailable();
}

const CudnnFunctions& cudnn() {
    return cudnn().functions();
}

}  // namespace mgplan::runtime::cuda
