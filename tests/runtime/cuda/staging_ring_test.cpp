// The ring of pinned memory before a card that works when it is waited for, and not before.

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/staging_ring.hpp"

namespace mgplan::runtime::cuda {
namespace staging_ring_test {

/// What was issued to the card and not done yet, in order.
struct Card {
    std::vector<std::function<void()>> issued;
    std::size_t done = 0;
    std::vector<std::size_t> events;  ///< where in `issued` each was recorded last
    int waits = 0, pinned = 0;
    int events_left = 1000;  ///< until making one fails

    void work_until(std::size_t place) {
        for (; done < place; ++done) issued[done]();
    }
};
Card card;

}  // namespace staging_ring_test

void throw_cuda_error(cudaError_t /*error*/, const char* call, const char* /*file*/, int /*line*/) {
    throw std::runtime_error(call);
}

}  // namespace mgplan::runtime::cuda

using mgplan::runtime::cuda::staging_ring_test::card;

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

namespace mgplan::runtime::cuda::staging_ring_test {
namespace {

TEST(StagingRing, BringsWhatWasThereWhenItWasCalled) {
    card = {};
    constexpr int kUploads = 3 * static_cast<int>(StagingRing::kSlots) + 5;
    std::vector<int> arrived(kUploads, -1);
    {
        StagingRing ring(nullptr);
        for (int i = 0; i < kUploads; ++i) {
            int value = i;
            ring.upload(&arrived[static_cast<std::size_t>(i)], &value, sizeof(value));
            value = -7;
            if (i + 1 == static_cast<int>(StagingRing::kSlots)) {
                EXPECT_EQ(card.waits, 0) << "there was a free slot each time";
                EXPECT_EQ(card.done, 0U);
            }
        }
        EXPECT_EQ(card.done, kUploads - StagingRing::kSlots) << "no more is waited for than the slot needs";
        card.work_until(card.issued.size());
    }
    for (int i = 0; i < kUploads; ++i) EXPECT_EQ(arrived[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(card.pinned, 0);
}

TEST(StagingRing, KeepsNoMemoryWhereTheCardHasNoEvents) {
    card = {};
    card.events_left = 3;
    EXPECT_THROW(StagingRing(nullptr), std::runtime_error);
    EXPECT_EQ(card.pinned, 0);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::staging_ring_test
