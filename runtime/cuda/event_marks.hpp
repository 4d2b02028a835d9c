#pragma once
// Marks on a GPU's stream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "model/device/device_marks.hpp"

namespace mgplan::runtime::cuda {

/// One CUDA event for each mark, reused after each take(). Their clock has a resolution of about half a microsecond
/// (cudaEventElapsedTime).
class EventMarks final : public model::DeviceMarks {
public:
    /// The stream must outlive it.
    explicit EventMarks(cudaStream_t stream) : stream_(stream) {}
    ~EventMarks() override;
    EventMarks(const EventMarks&) = delete;
    EventMarks& operator=(const EventMarks&) = delete;

    void mark() override;
    [[nodiscard]] std::vector<double> take() override;

private:
    cudaStream_t stream_;
    std::vector<cudaEvent_t> events_;
    std::size_t used_ = 0;
};

}  // namespace mgplan::runtime::cuda
