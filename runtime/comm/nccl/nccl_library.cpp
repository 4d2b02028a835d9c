#include "runtime/comm/nccl/nccl_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

const LibraryFunctions<NcclFunctions>& library() {
    static const LibraryFunctions<NcclFunctions> opened("NCCL", MGPLAN_LIBRARY_FILE("nccl", NCCL_MAJOR));
    return opened;
}

}  // namespace

const std::string& nccl_unavailable() {
    return library().unavailable();
}

const NcclFunctions& nccl() {
    return library().functions();
}

}  // namespace mgplan::runtime::cuda
