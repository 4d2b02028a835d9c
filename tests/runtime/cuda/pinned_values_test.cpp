// Values on their way from a card that works when it is waited for, and not before.

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>

#include "runtime/cuda/pinned_values.hpp"
#include "tests/runtime/cuda/waiting_card.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::runtime::cuda::pinned_values_test {
namespace {

using testing::ElementsAre;
using tests::card;

TEST(PinnedValues, AreThoseOfTheirPlaceInTheStreamAndWaitForNoMore) {
    card = {};
    tests::HostDevice device;
    const model::Tensor a = device.tensor<double>({2}, Dtype::fp64, {1, 2}), b = device.tensor<double>({1}, Dtype::fp64, {3}),
                        none = device.tensor<double>({0}, Dtype::fp64, {});
    {
        PinnedValues values(nullptr);
        for (int round = 0; round < 3; ++round) {
            values.send(std::array{a, none, b});
            EXPECT_EQ(card.waits, round) << "sending waits for nothing";
            // What is issued behind them, as the next step's passes are, which write the same memory.
            card.issued.emplace_back([&] { device.write(a, std::array{10.0, 20.0}.data()); });
            EXPECT_THAT(values.receive(), round == 0 ? ElementsAre(1, 2, 3) : ElementsAre(10, 20, 3));
            EXPECT_EQ(card.waits, round + 1);
            EXPECT_EQ(card.done + 1, card.issued.size()) << "what is behind them is not waited for";
        }
        EXPECT_EQ(card.pinned, 1) << "the same memory each time";
    }
    EXPECT_EQ(card.pinned, 0);
}

TEST(PinnedValues, TakeMoreRoomForMoreOfThem) {
    card = {};
    tests::HostDevice device;
    {
        PinnedValues values(nullptr);
        for (const std::int64_t count : {1, 1000, 3}) {
            const model::Tensor sent = device.tensor({count}, Dtype::fp64, std::vector<double>(static_cast<std::size_t>(count), 0.5));
            values.send({&sent, 1});
            EXPECT_THAT(values.receive(), testing::AllOf(testing::SizeIs(count), testing::Each(0.5)));
            EXPECT_EQ(card.pinned, 1);
        }
    }
    EXPECT_EQ(card.pinned, 0);
}

TEST(PinnedValues, ThatNobodyReceivedAreThereBeforeTheirMemoryGoes) {
    card = {};
    tests::HostDevice device;
    const model::Tensor a = device.tensor<double>({1}, Dtype::fp64, {1});
    {
        PinnedValues values(nullptr);
        values.send({&a, 1});
    }
    EXPECT_EQ(card.done, card.issued.size());
    EXPECT_EQ(card.pinned, 0);
}

TEST(PinnedValues, AreNotMadeWhereTheCardHasNoEvents) {
    card = {};
    card.events_left = 0;
    EXPECT_THROW(PinnedValues(nullptr), std::runtime_error);
    EXPECT_EQ(card.pinned, 0);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::pinned_values_test
