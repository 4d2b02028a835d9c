#pragma once
// The CPU as one rank uses it: one thread, kernels that run at once.

#include <memory>

#include "model/device/device.hpp"
#include "runtime/cpu/cpu_capture.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime {

class CpuDevice final : public model::Device {
public:
    /// With a pool of its own.
    CpuDevice();
    explicit CpuDevice(std::unique_ptr<MeasuredAllocator> allocator);
    [[nodiscard]] static model::KernelTraits kernel_traits() { return {}; }

    [[nodiscard]] const model::MemoryUse& memory() const { return measured_.use(); }
    [[nodiscard]] std::int64_t reserved_bytes() const { return measured_.reserved_bytes(); }
    /// Forgets maxima: from now on they are those of what is live.
    void restart_high_water() { measured_.restart_high_water(); }

    [[nodiscard]] model::WorkCapture* work_capture() override { return &capture_; }
    [[nodiscard]] CpuCapture& capture() { return capture_; }
    /// Sets the kernels: for a capture those that record their calls, else the plain ones.
    void call_kernels(const model::KernelTable& kernels) { use_kernels(&kernels); }

private:
    void do_write(void* to, const void* from, std::int64_t bytes) override;
    void do_read(void* to, const void* from, std::int64_t bytes) override;
    void do_zero(void* memory, std::int64_t bytes) override;

    MeasuredAllocator& measured_;
    CpuCapture capture_{*this};
};

}  // namespace mgplan::runtime
