#pragma once
// Messages between members that send before they receive, as a pipeline's do.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"

namespace mgplan::tests {

[[nodiscard]] inline model::Tensor filled(model::Device& device, std::int64_t elements, float value) {
    model::Tensor tensor = device.empty({elements}, Dtype::fp32, model::MemoryCategory::communication, "values");
    model::fill(tensor, value);
    return tensor;
}

[[nodiscard]] inline bool all_are(const model::Tensor& tensor, float value) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    tensor.device().read(tensor, values.data());
    return std::all_of(values.begin(), values.end(), [value](float each) { return each == value; });
}

/// As the last stage of an interleaved pipeline does: it leaves sends to the first open, and then waits for what the first sends before
/// it receives. Whether all messages, of `elements` numbers each, come as they were sent.
[[nodiscard]] inline bool receives_behind_open_sends(model::Device& device, model::Communicator& group, std::int64_t elements) {
    constexpr int kMessages = 3;
    const int size = group.size(), rank = group.rank(), next = (rank + 1) % size, previous = (rank + size - 1) % size;
    std::vector<std::unique_ptr<model::Pending>> open;
    std::vector<model::Tensor> sent;
    bool right = true;
    const auto receive = [&](int i) {
        const model::Tensor received = filled(device, elements, 0);
        group.receive(received, previous);
        right = right && all_are(received, static_cast<float>(100 * previous + i));
    };
    for (int i = 0; i < kMessages; ++i) {
        sent.push_back(filled(device, elements, static_cast<float>(100 * rank + i)));
        open.push_back(group.start_send(sent.back(), next));
        if (rank != 0 && rank != size - 1) receive(i);
    }
    if (rank == 0) {
        // Only when all of its own are gone does the first take what the last has sent.
        for (auto& each : open) each->wait();
        device.synchronize();
    }
    if (rank == 0 || rank == size - 1) {
        for (int i = 0; i < kMessages; ++i) receive(i);
    }
    for (auto& each : open) each->wait();
    device.synchronize();
    return right;
}

}  // namespace mgplan::tests
