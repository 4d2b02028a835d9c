#pragma once
// What `mgplan run` gets instead of a card's devices.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/training_run/rank_devices.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda {

class EmulatedDevices final : public RankDevices {
public:
    explicit EmulatedDevices(std::int64_t memory_bytes, std::shared_ptr<const model::FusedPlans> plans = nullptr, bool at_once = false)
        : memory_bytes_(memory_bytes), at_once_(at_once) {
        traits_.fused_plans = std::move(plans);
    }
    [[nodiscard]] std::string text() const override { return "an emulated GPU"; }
    [[nodiscard]] const model::KernelTraits& traits() const override { return traits_; }
    [[nodiscard]] MachineMemory memory() const override { return {memory_bytes_, "the emulated GPU has"}; }
    [[nodiscard]] bool runs_at_once() const override { return at_once_; }
    [[nodiscard]] std::unique_ptr<RankDevice> make(int /*rank*/, const ArenaScript* script) const override {
        EXPECT_EQ(script, nullptr);
        return std::make_unique<One>(traits_, waits_);
    }
    /// EmulatedDevice::waits() of all that are gone.
    [[nodiscard]] int waits() const { return waits_; }

private:
    class One final : public RankDevice {
    public:
        One(const model::KernelTraits& traits, std::atomic<int>& waits) : device_(traits), waits_(waits) {}
        ~One() override { waits_ += device_.waits(); }
        One(const One&) = delete;
        One& operator=(const One&) = delete;
        model::Device& device() override { return device_; }
        const model::MemoryUse& memory() const override { return device_.memory(); }
        std::int64_t reserved_bytes() const override { return device_.pool().reserved_bytes(); }
        const std::byte* uncounted(std::span<const std::byte> bytes) override {
            uncounted_.assign(bytes.begin(), bytes.end());
            return uncounted_.data();
        }

    private:
        EmulatedDevice device_;
        std::vector<std::byte> uncounted_;
        std::atomic<int>& waits_;
    };

    std::int64_t memory_bytes_;
    bool at_once_;
    model::KernelTraits traits_ = emulated_traits(true);
    mutable std::atomic<int> waits_ = 0;
};

}  // namespace mgplan::runtime::cuda
