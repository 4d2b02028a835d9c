#pragma once
// A rank's memory of a card.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime::cuda {

/// cudaMalloc. Blocks are only given back when a pool is trimmed; cudaFree waits for the whole card then. Checks run on the stream of the
/// rank whose blocks they are: another rank of this process may be capturing its own, which calls that wait for the whole card forbid
/// (CUDA programming guide, "Prohibited and Unhandled Operations"). Only cudaErrorMemoryAllocation means that memory is exhausted.
class CardBlocks final : public BlockSource {
public:
    /// Makes the rank's stream on a card, which it selects for the calling thread.
    explicit CardBlocks(int ordinal);
    ~CardBlocks() override;
    CardBlocks(const CardBlocks&) = delete;
    CardBlocks& operator=(const CardBlocks&) = delete;

    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    void* take(std::int64_t bytes) override;
    void give_back(void* block, std::int64_t bytes) noexcept override;
    void spoil(void* block, std::int64_t bytes) noexcept override;
    bool is_spoiled(const void* block, std::int64_t bytes) noexcept override;

private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace mgplan::runtime::cuda
