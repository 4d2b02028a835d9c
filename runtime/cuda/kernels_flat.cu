#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/launcher.cuh"
#include "runtime/cuda/ops/reduce.hpp"
#include "runtime/cuda/ops/table.hpp"

namespace mgplan::runtime::cuda {

void fill_flat_kernels(model::KernelTable& table) {
    fill_flat<CudaLauncher>(table);
}

void reduce_on(CudaDevice& device, Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end) {
    const CudaLauncher launcher(device);
    reduce_ranks(launcher, dtype, reduction, inputs, outputs, begin, end);
}

}  // namespace mgplan::runtime::cuda
