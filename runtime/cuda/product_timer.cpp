#include "runtime/cuda/product_timer.hpp"

#include <algorithm>
#include <span>

#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {
namespace {

void destroy(std::span<const cudaEvent_t> events) {
    for (cudaEvent_t event : events) {
        if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
}

}  // namespace

ProductTimer::ProductTimer(cudaStream_t stream) : stream_(stream) {
    cudaError_t error = cudaSuccess;
    for (cudaEvent_t& event : events_) {
        if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDefault);
    }
    if (error != cudaSuccess) destroy(events_);
    MGPLAN_CUDA(error);
}

ProductTimer::~ProductTimer() {
    destroy(events_);
}

std::optional<double> ProductTimer::measure(const std::function<bool()>& issue) {
    if (!issue()) return std::nullopt;
    MGPLAN_CUDA(cudaEventRecord(events_.front(), stream_));
    for (std::size_t run = 1; run <= kRuns; ++run) {
        if (!issue()) return std::nullopt;
        MGPLAN_CUDA(cudaEventRecord(events_[run], stream_));
    }
    MGPLAN_CUDA(cudaEventSynchronize(events_.back()));
    std::array<float, kRuns> milliseconds{};
    for (std::size_t run = 0; run < kRuns; ++run) MGPLAN_CUDA(cudaEventElapsedTime(&milliseconds[run], events_[run], events_[run + 1]));
    return 1e-3 * static_cast<double>(*std::min_element(milliseconds.begin(), milliseconds.end()));
}

}  // namespace mgplan::runtime::cuda
