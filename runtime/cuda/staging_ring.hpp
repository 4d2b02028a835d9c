#pragma once
// Copies small values to the card without waiting for it: they are first copied to pinned memory, which the card reads when its
// stream gets there. A copy from memory that is not pinned waits for staging, or, if the card reads that memory by itself, for all work
// that was issued before.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace mgplan::runtime::cuda {

/// For one stream and thread. Slots are used in turn; the next one is waited for only where the card has not read it yet.
class StagingRing {
public:
    static constexpr std::int64_t kSlotBytes = std::int64_t{1} << 18;
    static constexpr std::size_t kSlots = 16;

    explicit StagingRing(cudaStream_t stream);
    /// Requires that the stream's work is done.
    ~StagingRing();
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;

    /// At most kSlotBytes; `from` may change as soon as it returns.
    void upload(void* to, const void* from, std::int64_t bytes);

private:
    struct Slot {
        cudaEvent_t read = nullptr;
        bool used = false;
    };

    void release() noexcept;

    cudaStream_t stream_;
    std::byte* memory_ = nullptr;
    std::array<Slot, kSlots> slots_;
    std::size_t next_ = 0;
};

}  // namespace mgplan::runtime::cuda
