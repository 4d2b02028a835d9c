#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

const LibraryFunctions<CudnnFunctions>& library() {
    static const LibraryFunctions<CudnnFunctions> opened("cuDNN", MGPLAN_LIBRARY_FILE("cudnn", CUDNN_MAJOR));
    return opened;
}

}  // namespace

const std::string& cudnn_unavailable() {
    return library().unavailable();
}

const CudnnFunctions& cudnn() {
    return library().functions();
}

}  // namespace mgplan::runtime::cuda
