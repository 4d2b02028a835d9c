#include "runtime/cuda/pinned_values.hpp"

#include <cstdint>
#include <exception>
#include <utility>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

PinnedValues::PinnedValues(cudaStream_t stream) : stream_(stream) {
    MGPLAN_CUDA(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
}

PinnedValues::~PinnedValues() {
    // After an error the copies may never end, and other ranks wait to hear of the error: memory and event are left to the process.
    if (on_the_way_ && std::uncaught_exceptions() > 0) return;
    // Copies may still run. Errors were reported by the call that met them; a destructor cannot report them.
    if (on_the_way_) static_cast<void>(cudaEventSynchronize(arrived_));
    if (memory_ != nullptr) static_cast<void>(cudaFreeHost(memory_));
    static_cast<void>(cudaEventDestroy(arrived_));
}

void PinnedValues::make_room(std::size_t values) {
    if (values <= room_) return;
    room_ = 0;
    if (memory_ != nullptr) MGPLAN_CUDA(cudaFreeHost(std::exchange(memory_, nullptr)));
    MGPLAN_CUDA(cudaMallocHost(reinterpret_cast<void**>(&memory_), values * sizeof(double)));
    room_ = values;
}

void PinnedValues::send(std::span<const model::Tensor> tensors) {
    MGPLAN_ASSERT(!on_the_way_, "what was sent is received before more is sent");
    std::size_t values = 0;
    for (const model::Tensor& tensor : tensors) {
        MGPLAN_ASSERT(tensor.dtype() == Dtype::fp64, "late values are fp64");
        values += static_cast<std::size_t>(tensor.elements());
    }
    make_room(values);
    sent_ = 0;
    for (const model::Tensor& tensor : tensors) {
        if (tensor.elements() == 0) continue;
        MGPLAN_CUDA(
            cudaMemcpyAsync(memory_ + sent_, tensor.data(), static_cast<std::size_t>(tensor.bytes()), cudaMemcpyDeviceToHost, stream_));
        sent_ += static_cast<std::size_t>(tensor.elements());
    }
    MGPLAN_CUDA(cudaEventRecord(arrived_, stream_));
    on_the_way_ = true;
}

std::vector<double> PinnedValues::receive() {
    MGPLAN_ASSERT(on_the_way_, "what is received was sent");
    MGPLAN_CUDA(cudaEventSynchronize(arrived_));
    on_the_way_ = false;
    return {memory_, memory_ + sent_};
}

}  // namespace mgplan::runtime::cuda
