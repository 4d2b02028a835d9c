#include "runtime/cpu/cpu_device.hpp"

#include <cstring>

#include "model/ops/kernel_table.hpp"
#include "runtime/cpu/ops/kernels.hpp"

namespace mgplan::runtime {

CpuDevice::CpuDevice() : CpuDevice(std::make_unique<PoolAllocator>(host_blocks())) {}

CpuDevice::CpuDevice(std::unique_ptr<MeasuredAllocator> allocator)
    : Device(model::DeviceKind::cpu, kernel_traits(), std::move(allocator), &model::with_every_kernel(cpu::kernels())),
      measured_(static_cast<MeasuredAllocator&>(Device::allocator())) {}

void CpuDevice::do_write(void* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void CpuDevice::do_read(void* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void CpuDevice::do_zero(void* memory, std::int64_t bytes) {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
    capture_.add([=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
}

}  // namespace mgplan::runtime
