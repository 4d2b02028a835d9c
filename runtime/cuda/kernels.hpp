#pragma once
// The GPU's kernel table, filled by one function for each .cu file, and the sum over ranks that share a GPU.

#include <span>

#include "model/device/memory_operations.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::runtime::cuda {

class CudaDevice;

void fill_dense_kernels(model::KernelTable& table);
void fill_flat_kernels(model::KernelTable& table);
void fill_recurrent_kernels(model::KernelTable& table);
void fill_router_kernels(model::KernelTable& table);

/// As MemoryOperations::reduce, on the device's stream.
void reduce_on(CudaDevice& device, Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end);

}  // namespace mgplan::runtime::cuda
