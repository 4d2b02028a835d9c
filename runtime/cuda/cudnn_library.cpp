#include "runtime/cuda/cudnn_library.hpp"

#include "plan/errors.hpp"
#include "runtime/cuda/lazy_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

#define MGPLAN_TEXT_OF(value) #value
#define MGPLAN_TEXT(value) MGPLAN_TEXT_OF(value)

struct Loaded {
    Loaded() {
        LazyLibrary library("cuDNN", "libcudnn.so." MGPLAN_TEXT(CUDNN_MAJOR));
#define MGPLAN_CUDNN_FIND(name) functions.name = reinterpret_cast<decltype(functions.name)>(library.find(#name));
        MGPLAN_CUDNN_FUNCTIONS(MGPLAN_CUDNN_FIND)
#undef MGPLAN_CUDNN_FIND
        unavailable = library.unavailable();
    }
    CudnnFunctions functions;
    std::string unavailable;
};

const Loaded& loaded() {
    static const Loaded library;
    return library;
}

}  // namespace

const std::string& cudnn_unavailable() {
    return loaded().unavailable;
}

const CudnnFunctions& cudnn() {
    MGPLAN_ASSERT(loaded().unavailable.empty(), "cuDNN is there");
    return loaded().functions;
}

}  // namespace mgplan::runtime::cuda
