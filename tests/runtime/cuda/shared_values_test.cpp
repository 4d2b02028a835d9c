#include "runtime/cuda/shared_values.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace mgplan::runtime::cuda::shared_values_test {
namespace {

TEST(SharedValues, IsMadeByTheFirstThreadWhileTheOthersWait) {
    SharedValues<int, std::string> values;
    std::atomic<int> made = 0;
    std::vector<const std::string*> got(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < got.size(); ++i) {
        threads.emplace_back([&, i] {
            got[i] = &values.get(7, [&] {
                ++made;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                return std::string("seven");
            });
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    for (const std::string* const each : got) {
        EXPECT_EQ(each, got.front());
        EXPECT_EQ(*each, "seven");
    }
}

// Who makes one value may wait for the thread that makes another.
TEST(SharedValues, MakesDifferentValuesAtTheSameTime) {
    SharedValues<int, int> values;
    std::atomic<bool> other_is_made = false;
    std::thread other([&] {
        EXPECT_EQ(values.get(2, [] { return 20; }), 20);
        other_is_made = true;
    });
    EXPECT_EQ(values.get(1,
                         [&] {
                             for (int i = 0; i < 2000 && !other_is_made; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                             return other_is_made ? 10 : 0;
                         }),
              10);
    other.join();
}

TEST(SharedValues, IsMadeByTheNextWhereTheFirstFails) {
    SharedValues<int, int> values;
    EXPECT_THROW(static_cast<void>(values.get(1, []() -> int { throw std::runtime_error("the first"); })), std::runtime_error);
    EXPECT_EQ(values.get(1, [] { return 2; }), 2);
    EXPECT_EQ(values.get(1, [] { return 3; }), 2);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::shared_values_test
