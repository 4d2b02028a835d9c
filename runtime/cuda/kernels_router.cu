#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/launcher.cuh"
#include "runtime/cuda/ops/table.hpp"

namespace mgplan::runtime::cuda {

void fill_router_kernels(model::KernelTable& table) {
    fill_router<CudaLauncher>(table);
}

}  // namespace mgplan::runtime::cuda
