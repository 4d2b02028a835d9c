#include "runtime/cpu/cpu_device.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {
namespace {

class CpuRankDevice final : public RankDevice {
public:
    model::Device& device() override { return device_; }
    const model::MemoryUse& memory() const override { return device_.memory(); }
    std::int64_t reserved_bytes() const override { return device_.pool().reserved_bytes(); }

private:
    CpuDevice device_;
};

class CpuDevices final : public RankDevices {
public:
    std::string text() const override { return "CPU"; }
    const model::KernelTraits& traits() const override { return traits_; }
    MachineMemory memory() const override { return machine_memory(); }
    bool runs_at_once() const override { return true; }
    std::unique_ptr<RankDevice> make(int /*rank*/) const override { return std::make_unique<CpuRankDevice>(); }

private:
    model::KernelTraits traits_ = CpuDevice::kernel_traits();
};

}  // namespace

const RankDevices& cpu_devices() {
    static const CpuDevices devices;
    return devices;
}

}  // namespace mgplan::runtime
