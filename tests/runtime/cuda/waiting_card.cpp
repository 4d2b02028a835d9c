#include "tests/runtime/cuda/waiting_card.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>

#include "runtime/cuda/check.hpp"

namespace mgplan {

tests::WaitingCard tests::card;

void runtime::cuda::throw_cuda_error(cudaError_t /*error*/, const char* call, const char* /*file*/, int /*line*/) {
    throw std::runtime_error(call);
}

}  // namespace mgplan

using mgplan::tests::card;

extern "C" {
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    *memory = ::operator new(bytes);
    ++card.pinned;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
    ::operator delete(memory);
    --card.pinned;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
    if (card.events_left-- == 0) return cudaErrorMemoryAllocation;
    card.events.push_back(0);
    *event = reinterpret_cast<cudaEvent_t>(card.events.size());  // NOLINT(performance-no-int-to-ptr)
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) {
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t /*stream*/) {
    card.events[reinterpret_cast<std::uintptr_t>(event) - 1] = card.issued.size();
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ++card.waits;
    card.work_until(card.events[reinterpret_cast<std::uintptr_t>(event) - 1]);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t /*stream*/) {
    card.issued.emplace_back([to, from, bytes] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
}
