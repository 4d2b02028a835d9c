#include "runtime/cuda/event_marks.hpp"

#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

EventMarks::~EventMarks() {
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
}

void EventMarks::mark() {
    if (used_ == events_.size()) {
        cudaEvent_t made = nullptr;
        MGPLAN_CUDA(cudaEventCreateWithFlags(&made, cudaEventDefault));
        events_.push_back(made);
    }
    MGPLAN_CUDA(cudaEventRecord(events_[used_], stream_));
    ++used_;
}

std::vector<double> EventMarks::take() {
    std::vector<double> seconds;
    if (used_ > 0) MGPLAN_CUDA(cudaEventSynchronize(events_[used_ - 1]));
    for (std::size_t i = 1; i < used_; ++i) {
        float milliseconds = 0;
        MGPLAN_CUDA(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]));
        seconds.push_back(1e-3 * static_cast<double>(milliseconds));
    }
    used_ = 0;
    return seconds;
}

}  // namespace mgplan::runtime::cuda
