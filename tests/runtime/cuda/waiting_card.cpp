#include "tests/runtime/cuda/waiting_card.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "runtime/cuda/check.hpp"

namespace mgplan {

tests::WaitingCard tests::card;

void runtime::cuda::throw_cuda_error(cudaError_t error, const char* call, const char* /*file*/, int /*line*/) {
    tests::card.thrown = error;
    throw std::runtime_error(call);
}

}  // namespace mgplan

using mgplan::tests::card;

extern "C" {
cudaError_t cudaSetDevice(int /*device*/) {
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return std::exchange(card.last_error, cudaSuccess);
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    if (!card.refusals.empty()) {
        card.last_error = card.refusals.front();
        card.refusals.pop_front();
        return card.last_error;
    }
    *memory = ::operator new (bytes, std::align_val_t{256});
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    ::operator delete (memory, std::align_val_t{256});
    ++card.freed;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
    *stream = nullptr;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) {
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
    card.work_until(card.issued.size());
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t /*stream*/) {
    card.issued.emplace_back([memory, value, bytes] { std::memset(memory, value, bytes); });
    return cudaSuccess;
}
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
