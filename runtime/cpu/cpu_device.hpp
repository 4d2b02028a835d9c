#pragma once
// The CPU as one rank uses it: one thread, kernels that run at once.

#include "model/device/device.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime {

class CpuDevice final : public model::Device {
public:
    CpuDevice();
    [[nodiscard]] static model::KernelTraits kernel_traits() { return {}; }

    [[nodiscard]] const model::MemoryUse& memory() const { return pool_.use(); }
    [[nodiscard]] PoolAllocator& pool() { return pool_; }
    [[nodiscard]] const PoolAllocator& pool() const { return pool_; }

private:
    void do_write(void* to, const void* from, std::int64_t bytes) override;
    void do_read(void* to, const void* from, std::int64_t bytes) override;
    void do_zero(void* memory, std::int64_t bytes) override;

    PoolAllocator& pool_;
};

}  // namespace mgplan::runtime
