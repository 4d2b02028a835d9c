#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/launcher.cuh"
#include "runtime/cuda/ops/table.hpp"

namespace mgplan::runtime::cuda {

void fill_recurrent_kernels(model::KernelTable& table) {
    fill_recurrent<CudaLauncher>(table);
}

}  // namespace mgplan::runtime::cuda
