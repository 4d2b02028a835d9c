#include "runtime/comm/nccl/nccl_library.hpp"

#include "plan/errors.hpp"
#include "runtime/cuda/lazy_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

#define MGPLAN_TEXT_OF(value) #value
#define MGPLAN_TEXT(value) MGPLAN_TEXT_OF(value)

struct Loaded {
    Loaded() {
        LazyLibrary library("NCCL", "libnccl.so." MGPLAN_TEXT(NCCL_MAJOR));
#define MGPLAN_NCCL_FIND(name) functions.name = reinterpret_cast<decltype(functions.name)>(library.find(#name));
        MGPLAN_NCCL_FUNCTIONS(MGPLAN_NCCL_FIND)
#undef MGPLAN_NCCL_FIND
        unavailable = library.unavailable();
    }
    NcclFunctions functions;
    std::string unavailable;
};

const Loaded& loaded() {
    static const Loaded library;
    return library;
}

}  // namespace

const std::string& nccl_unavailable() {
    return loaded().unavailable;
}

const NcclFunctions& nccl() {
    MGPLAN_ASSERT(loaded().unavailable.empty(), "NCCL is there");
    return loaded().functions;
}

}  // namespace mgplan::runtime::cuda
