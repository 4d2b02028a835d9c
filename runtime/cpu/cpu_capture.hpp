#pragma once
// Replaces CUDA graphs on the CPU: kernels are called through a table that records their calls, and a replay makes the
// calls again, with the same addresses and values, without the layers' code. Work that a GPU could not repeat is refused.

#include <functional>
#include <vector>

#include "model/device/device.hpp"
#include "model/device/graph_capture.hpp"

namespace mgplan::runtime {

class CpuDevice;

class CpuCapture final : public model::WorkCapture {
public:
    /// The device must outlive it.
    explicit CpuCapture(CpuDevice& device) : device_(device) {}

    void begin() override;
    [[nodiscard]] std::unique_ptr<model::CapturedWork> end() override;
    void abandon() noexcept override;
    [[nodiscard]] bool runs_at_once() const override { return true; }

    /// Records a call that was just made, while calls are recorded.
    void add(std::function<void()> call) {
        if (recording_) calls_.push_back(std::move(call));
    }

private:
    CpuDevice& device_;
    bool recording_ = false;
    std::vector<std::function<void()>> calls_;
};

}  // namespace mgplan::runtime
