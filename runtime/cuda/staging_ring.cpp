#include "runtime/cuda/staging_ring.hpp"

#include <cstring>

#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

StagingRing::StagingRing(cudaStream_t stream) : stream_(stream) {
    cudaError_t error = cudaMallocHost(reinterpret_cast<void**>(&memory_), kSlots * static_cast<std::size_t>(kSlotBytes));
    for (Slot& slot : slots_) {
        if (error == cudaSuccess) error = cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming);
    }
    if (error != cudaSuccess) release();
    MGPLAN_CUDA(error);
}

StagingRing::~StagingRing() {
    release();
}

void StagingRing::release() noexcept {
    for (Slot& slot : slots_) {
        if (slot.read != nullptr) static_cast<void>(cudaEventDestroy(slot.read));
    }
    if (memory_ != nullptr) static_cast<void>(cudaFreeHost(memory_));
}

void StagingRing::upload(void* to, const void* from, std::int64_t bytes) {
    Slot& slot = slots_[next_];
    if (slot.used) MGPLAN_CUDA(cudaEventSynchronize(slot.read));
    std::byte* const memory = memory_ + next_ * static_cast<std::size_t>(kSlotBytes);
    std::memcpy(memory, from, static_cast<std::size_t>(bytes));
    MGPLAN_CUDA(cudaMemcpyAsync(to, memory, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream_));
    MGPLAN_CUDA(cudaEventRecord(slot.read, stream_));
    slot.used = true;
    next_ = (next_ + 1) % kSlots;
}

}  // namespace mgplan::runtime::cuda
