#include "simulator/piece/made_once.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace mgplan::simulator::made_once_test {
namespace {

TEST(MadeOnce, IsMadeByOneOfManyThreadsBeforeAnyGoesOn) {
    constexpr int kThings = 200, kThreads = 4;
    std::vector<MadeOnce> once(kThings);
    std::vector<int> made(kThings, 0);
    std::atomic<int> unmade = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (std::size_t i = 0; i < kThings; ++i) {
                once[i].call([&] {
                    if (i % 16 == 0) std::this_thread::yield();
                    ++made[i];
                });
                if (made[i] != 1) ++unmade;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(unmade, 0);
    EXPECT_EQ(made, std::vector<int>(kThings, 1));
}

TEST(MadeOnce, IsTriedAgainWhereMakingThrows) {
    MadeOnce once;
    int tries = 0;
    const auto make = [&] {
        if (++tries == 1) throw std::runtime_error("no memory");
    };
    EXPECT_THROW(once.call(make), std::runtime_error);
    once.call(make);
    once.call(make);
    EXPECT_EQ(tries, 2);
}

}  // namespace
}  // namespace mgplan::simulator::made_once_test
