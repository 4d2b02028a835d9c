#include <map>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
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
    std::optional<std::int64_t> free_bytes() override { return device_->free_bytes(); }
    SteppedMemory* arena() override { return device_->arena(); }
    std::unique_ptr<model::DeviceMarks> make_marks() override { return device_->make_marks(); }
    const std::byte* uncounted(std::span<const std::byte> bytes) override { return device_->uncounted(bytes); }
    [[nodiscard]] CudaDeviceInterface& card() { return *device_; }

private:
    std::unique_ptr<CudaDeviceInterface> device_;
};

/// Remembers for each shape whether cuDNN has a plan on a card, so that cuDNN is called once per shape.
class CardPlans final : public model::FusedPlans {
public:
    CardPlans(CudaModule& module, int ordinal) : module_(module), ordinal_(ordinal) {}
    bool refuses(const model::FusedShape& shape, std::int64_t workspace_bytes) const override {
        const std::scoped_lock lock(mutex_);
        const std::pair asked(shape, workspace_bytes);
        const auto known = refused_.find(asked);
        if (known != refused_.end()) return known->second;
        return refused_.emplace(asked, module_.refuses_attention(ordinal_, shape, workspace_bytes)).first->second;
    }

private:
    CudaModule& module_;
    int ordinal_;
    mutable std::mutex mutex_;
    mutable std::map<std::pair<model::FusedShape, std::int64_t>, bool> refused_;
};

class CudaDevices final : public RankDevices {
public:
    CudaDevices(CudaModule& module, bool deterministic, const CudaCard& card)
        : module_(module), deterministic_(deterministic), card_(card) {
        if (deterministic) card_.traits.fused_attention = false;
        card_.traits.fused_plans = std::make_shared<CardPlans>(module, card.ordinal);
    }
    std::string text() const override { return card_.name + (card_.traits.fused_attention ? "" : " without cuDNN"); }
    const model::KernelTraits& traits() const override { return card_.traits; }
    // A context has its part, and others may run on the card.
    MachineMemory memory() const override {
        return {module_.free_bytes(card_.ordinal), fmt::format("GPU {} ({}) has free", card_.ordinal, card_.name)};
    }
    bool runs_at_once() const override { return false; }
    std::unique_ptr<RankDevice> make(int rank, const ArenaScript* script) const override {
        return std::make_unique<CudaRankDevice>(module_.make_device(card_.ordinal, rank, deterministic_, script, card_.traits.fused_plans));
    }
    std::unique_ptr<NcclWorldInterface> connect(RankDevice& device, int rank, int size, const Bootstrap& bootstrap,
                                                const NcclOptions& options) const override {
        return module_.make_nccl_world(static_cast<CudaRankDevice&>(device).card(), rank, size, bootstrap, options);
    }

private:
    CudaModule& module_;
    bool deterministic_;
    CudaCard card_;
};

}  // namespace

std::unique_ptr<NcclWorldInterface> RankDevices::connect(RankDevice& /*device*/, int /*rank*/, int /*size*/, const Bootstrap& /*bootstrap*/,
                                                         const NcclOptions& /*options*/) const {
    throw ConfigError(fmt::format("{} has no NCCL; use --device cuda", text()));
}

std::shared_ptr<const RankDevices> cuda_devices(bool deterministic, std::optional<int> local_rank) {
    CudaModule& module = cuda_module();
    const auto cards = module.cards();
    std::size_t place = 0;
    // A launcher may show each process its own card alone, or all of them.
    if (local_rank && cards.size() > 1) place = static_cast<std::size_t>(*local_rank);
    if (place >= cards.size()) {
        throw ConfigError(fmt::format(
            "local rank {} has no GPU of its own: CUDA shows {} to this process; start at most {} processes on this machine, or look at "
            "CUDA_VISIBLE_DEVICES",
            place, cards.size(), cards.size()));
    }
    return std::make_shared<CudaDevices>(module, deterministic, cards[place]);
}

}  // namespace mgplan::runtime
