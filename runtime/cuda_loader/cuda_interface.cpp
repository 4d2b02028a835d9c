#include <fmt/core.h>

#include "runtime/cuda_loader/cuda_module.hpp"

namespace mgplan::runtime {

std::string cuda_interface() {
    return fmt::format("mgplan {}, device {}, tensor {}, kernels {}, attention {}, records {}, compiler {}", MGPLAN_VERSION,
                       sizeof(CudaDeviceInterface), sizeof(model::Tensor), sizeof(model::KernelTable),
                       sizeof(model::AttentionBackwardArguments), sizeof(model::OpRecord), __VERSION__);
}

}  // namespace mgplan::runtime
