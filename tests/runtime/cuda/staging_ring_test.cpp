// The ring of pinned memory before a card that works when it is waited for, and not before.

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cuda/staging_ring.hpp"
#include "tests/runtime/cuda/waiting_card.hpp"

namespace mgplan::runtime::cuda::staging_ring_test {
namespace {

using tests::card;

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
