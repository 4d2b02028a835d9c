#include "runtime/cuda/card_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

CardBlocks::CardBlocks(int ordinal) {
    MGPLAN_CUDA(cudaSetDevice(ordinal));
    MGPLAN_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CardBlocks::~CardBlocks() {
    static_cast<void>(cudaStreamDestroy(stream_));
}

void* CardBlocks::take(std::int64_t bytes) {
    void* block = nullptr;
    const cudaError_t error = cudaMalloc(&block, static_cast<std::size_t>(bytes));
    if (error == cudaSuccess) return block;
    static_cast<void>(cudaGetLastError());  // an allocation that failed is no error of later calls
    if (error == cudaErrorMemoryAllocation) return nullptr;
    throw_cuda_error(error, "cudaMalloc", __FILE__, __LINE__);
}

void CardBlocks::give_back(void* block, std::int64_t /*bytes*/) noexcept {
    static_cast<void>(cudaFree(block));
}

// On the rank's stream: after its earlier use of the block and before its next one.
void CardBlocks::spoil(void* block, std::int64_t bytes) noexcept {
    static_cast<void>(cudaMemsetAsync(block, 0xff, static_cast<std::size_t>(bytes), stream_));
}

bool CardBlocks::is_spoiled(const void* block, std::int64_t bytes) noexcept {
    std::array<unsigned char, 4096> values{};
    const auto* const from = static_cast<const std::byte*>(block);
    for (std::int64_t at = 0; at < bytes; at += std::ssize(values)) {
        const std::int64_t count = std::min<std::int64_t>(bytes - at, std::ssize(values));
        if (cudaMemcpyAsync(values.data(), from + at, static_cast<std::size_t>(count), cudaMemcpyDeviceToHost, stream_) != cudaSuccess ||
            cudaStreamSynchronize(stream_) != cudaSuccess)
            return false;
        if (!std::all_of(values.begin(), values.begin() + count, [](unsigned char value) { return value == 0xff; })) return false;
    }
    return true;
}

}  // namespace mgplan::runtime::cuda
