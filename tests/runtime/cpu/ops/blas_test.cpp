#include "runtime/cpu/ops/blas.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace mgplan::runtime::blas_test {
namespace {

// Debian's serial OpenBLAS alone fails this in about 1 % of the products (blas.cpp).
TEST(Blas, MultipliesOnManyThreadsAtOnce) {
    constexpr std::int64_t kSize = 24;
    constexpr int kRounds = 30000, kThreads = 4;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&wrong, thread] {
            std::vector<float> a(kSize * kSize), b(kSize * kSize), expected(kSize * kSize), c(kSize * kSize);
            for (std::size_t i = 0; i < a.size(); ++i) {
                a[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(thread)) % 5);
                b[i] = static_cast<float>((i * 3 + static_cast<std::size_t>(thread)) % 7);
            }
            for (std::size_t i = 0; i < kSize; ++i) {
                for (std::size_t j = 0; j < kSize; ++j) {
                    for (std::size_t k = 0; k < kSize; ++k) expected[i * kSize + j] += a[i * kSize + k] * b[k * kSize + j];
                }
            }
            for (int round = 0; round < kRounds; ++round) {
                gemm(false, false, kSize, kSize, kSize, 1.0F, {a.data(), kSize}, {b.data(), kSize}, 0.0F, {c.data(), kSize});
                if (c != expected) ++wrong;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

TEST(Blas, ScalesWhatIsThereWhenTheInnerSizeIsZero) {
    std::vector<double> c{1, 2, 3, 4};
    gemm(false, false, 1, 2, 0, 1.0, {nullptr, 1}, {nullptr, 2}, 3.0, {c.data(), 2});
    EXPECT_EQ(c, (std::vector<double>{3, 6, 3, 4}));
    gemm(false, false, 1, 2, 0, 1.0, {nullptr, 1}, {nullptr, 2}, 0.0, {c.data(), 2});
    EXPECT_EQ(c, (std::vector<double>{0, 0, 3, 4}));
}

TEST(Blas, RefusesSizesThatDoNotFit) {
    float value = 0;
    EXPECT_THROW(gemm(false, false, 1, 1, std::int64_t{1} << 31, 1.0F, {&value, 1}, {&value, 1}, 0.0F, {&value, 1}), std::logic_error);
}

}  // namespace
}  // namespace mgplan::runtime::blas_test
