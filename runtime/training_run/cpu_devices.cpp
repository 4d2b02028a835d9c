#include <utility>
#include <vector>

#include "runtime/cpu/cpu_device.hpp"
#include "runtime/memory/arena_allocator.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {
namespace {

class CpuRankDevice final : public RankDevice {
public:
    CpuRankDevice() = default;
    explicit CpuRankDevice(std::unique_ptr<ArenaAllocator> arena) : arena_(arena.get()), device_(std::move(arena)) {}
    model::Device& device() override { return device_; }
    const model::MemoryUse& memory() const override { return device_.memory(); }
    std::int64_t reserved_bytes() const override { return device_.reserved_bytes(); }
    SteppedMemory* arena() override { return arena_; }
    const std::byte* uncounted(std::span<const std::byte> bytes) override {
        uncounted_.assign(bytes.begin(), bytes.end());
        return uncounted_.data();
    }

private:
    ArenaAllocator* arena_ = nullptr;  ///< the device's
    CpuDevice device_;
    std::vector<std::byte> uncounted_;
};

class CpuDevices final : public RankDevices {
public:
    std::string text() const override { return "CPU"; }
    const model::KernelTraits& traits() const override { return traits_; }
    MachineMemory memory() const override { return machine_memory(); }
    bool runs_at_once() const override { return true; }
    std::unique_ptr<RankDevice> make(int /*rank*/, const ArenaScript* script) const override {
        if (script == nullptr) return std::make_unique<CpuRankDevice>();
        return std::make_unique<CpuRankDevice>(std::make_unique<ArenaAllocator>(*script));
    }

private:
    model::KernelTraits traits_ = CpuDevice::kernel_traits();
};

}  // namespace

const RankDevices& cpu_devices() {
    static const CpuDevices devices;
    return devices;
}

}  // namespace mgplan::runtime
