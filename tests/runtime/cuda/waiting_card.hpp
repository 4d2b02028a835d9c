#pragma once
// A card that works when it is waited for, and not before: CUDA's calls that rings of pinned memory make, and those of blocks of a card.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

namespace mgplan::tests {

/// What was issued to the card and not done yet, in order.
struct WaitingCard {
    std::vector<std::function<void()>> issued;
    std::size_t done = 0;
    std::vector<std::size_t> events;  ///< where in `issued` each was recorded last
    int waits = 0, pinned = 0;
    int events_left = 1000;            ///< until making one fails
    std::deque<cudaError_t> refusals;  ///< of the next allocations
    int freed = 0;
    cudaError_t last_error = cudaSuccess, thrown = cudaSuccess;

    void work_until(std::size_t place) {
        for (; done < place; ++done) issued[done]();
    }
};
extern WaitingCard card;

}  // namespace mgplan::tests
