// Memory of a card that has none left, or refuses for another reason.

#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "runtime/cuda/card_blocks.hpp"
#include "tests/runtime/cuda/waiting_card.hpp"

namespace mgplan::runtime::cuda::card_blocks_test {
namespace {

using model::MemoryCategory;
using tests::card;

constexpr std::int64_t kKept = 1000, kMore = 5000;

/// A pool that keeps a block which nobody uses.
struct Pool {
    Pool() {
        card = {};
        pool.give_back(pool.take(kKept, MemoryCategory::activations, "kept"), kKept, MemoryCategory::activations);
    }
    CardBlocks blocks{0};
    PoolAllocator pool{blocks};
};

TEST(CardBlocks, GiveBackWhatIsKeptWhereTheCardIsFull) {
    Pool one;
    card.refusals = {cudaErrorMemoryAllocation};
    std::byte* const memory = one.pool.take(kMore, MemoryCategory::activations, "more");
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(card.freed, 1);
    one.pool.give_back(memory, kMore, MemoryCategory::activations);
    card.refusals = {cudaErrorMemoryAllocation, cudaErrorMemoryAllocation};
    EXPECT_THROW((void)one.pool.take(2 * kMore, MemoryCategory::activations, "too much"), std::bad_alloc);
    EXPECT_EQ(card.last_error, cudaSuccess) << "no error of the next launch";
}

// Freeing waits for the whole card, which a capture forbids, and a broken context has no room either way.
TEST(CardBlocks, SayWhatElseIsWrongAndGiveNothingBack) {
    for (const cudaError_t error : {cudaErrorStreamCaptureUnsupported, cudaErrorIllegalAddress}) {
        Pool one;
        card.refusals = {error};
        EXPECT_THROW((void)one.pool.take(kMore, MemoryCategory::activations, "more"), std::runtime_error);
        EXPECT_EQ(card.thrown, error);
        EXPECT_EQ(card.freed, 0);
        EXPECT_EQ(card.last_error, cudaSuccess);
        one.pool.give_back(one.pool.take(kMore, MemoryCategory::activations, "later"), kMore, MemoryCategory::activations);
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::card_blocks_test
