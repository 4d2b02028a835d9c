#pragma once
// Copies values from the card to pinned memory of the host. An event marks the end of the copies: receive() waits for them, and not for
// work issued after them.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "model/device/late_values.hpp"

namespace mgplan::runtime::cuda {

/// For one stream and thread. Memory is taken when more is sent than ever before, the first time above all.
class PinnedValues final : public model::LateValues {
public:
    /// The stream must outlive it.
    explicit PinnedValues(cudaStream_t stream);
    ~PinnedValues() override;
    PinnedValues(const PinnedValues&) = delete;
    PinnedValues& operator=(const PinnedValues&) = delete;

    void send(std::span<const model::Tensor> tensors) override;
    [[nodiscard]] std::vector<double> receive() override;

private:
    void make_room(std::size_t values);

    cudaStream_t stream_;
    cudaEvent_t arrived_ = nullptr;
    double* memory_ = nullptr;
    std::size_t room_ = 0, sent_ = 0;
    bool on_the_way_ = false;
};

}  // namespace mgplan::runtime::cuda
