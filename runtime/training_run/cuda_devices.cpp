#include <utility>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {
namespace {

class CudaRankDevice final : public RankDevice {
public:
    explicit CudaRankDevice(std::unique_ptr<CudaDeviceInterface> device) : device_(std::move(device)) {}
    model::Device& device() override { return *device_; }
    const model::MemoryUse& memory() const override { return device_->memory(); }
    std::int64_t reserved_bytes() const override { return device_->reserved_bytes(); }
    SteppedMemory* arena() override { return device_->arena(); }

private:
    std::unique_ptr<CudaDeviceInterface> device_;
};

class CudaDevices final : public RankDevices {
public:
    CudaDevices(CudaModule& module, bool deterministic) : module_(module), deterministic_(deterministic), card_(module.cards().at(0)) {
        if (deterministic) card_.traits.fused_attention = false;
    }
    std::string text() const override { return card_.name + (card_.traits.fused_attention ? "" : " without cuDNN"); }
    const model::KernelTraits& traits() const override { return card_.traits; }
    MachineMemory memory() const override { return {card_.memory_bytes, fmt::format("GPU {} ({}) has", card_.ordinal, card_.name)}; }
    bool runs_at_once() const override { return false; }
    std::unique_ptr<RankDevice> make(int rank, const ArenaScript* script) const override {
        return std::make_unique<CudaRankDevice>(module_.make_device(card_.ordinal, rank, deterministic_, script));
    }

private:
    CudaModule& module_;
    bool deterministic_;
    CudaCard card_;
};

}  // namespace

std::shared_ptr<const RankDevices> cuda_devices(bool deterministic) {
    return std::make_shared<CudaDevices>(cuda_module(), deterministic);
}

}  // namespace mgplan::runtime
