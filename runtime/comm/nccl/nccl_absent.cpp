#include "plan/text/errors.hpp"
#include "runtime/comm/nccl/nccl_world.hpp"

namespace mgplan::runtime::cuda {

std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDevice& /*device*/, int /*rank*/, int /*size*/, const Bootstrap& /*bootstrap*/,
                                                    const NcclOptions& /*options*/) {
    throw RunError("this build of the CUDA module has no NCCL; build it where NCCL is installed, or run all ranks in one process");
}

std::string nccl_version() {
    return {};
}

}  // namespace mgplan::runtime::cuda
