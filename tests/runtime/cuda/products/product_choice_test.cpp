#include "runtime/cuda/product_choice.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace mgplan::runtime::cuda::product_choice_test {
namespace {

using Seconds = std::vector<std::optional<double>>;

TEST(ProductChoice, IsTheShortestAndOfEqualOnesTheLibrarysEarlier) {
    EXPECT_EQ(fastest(Seconds{3.0, 2.0, 1.0, 2.0}), 2U);
    EXPECT_EQ(fastest(Seconds{3.0, 2.0, 2.0}), 1U);
    EXPECT_EQ(fastest(Seconds{1.0}), 0U);
    EXPECT_EQ(fastest(Seconds{}), 0U);
}

TEST(ProductChoice, StaysWithTheFirstForLessThanAHundredth) {
    EXPECT_EQ(fastest(Seconds{1.0, 0.995}), 0U);
    EXPECT_EQ(fastest(Seconds{1.0, 0.985}), 1U);
    EXPECT_EQ(fastest(Seconds{std::nullopt, 1.0, 0.995}), 2U) << "the first does not run";
}

TEST(ProductChoice, LeavesOutWhatFailed) {
    EXPECT_EQ(fastest(Seconds{2.0, std::nullopt, 1.0}), 2U);
    EXPECT_EQ(fastest(Seconds{std::nullopt, 1.0}), 1U);
    EXPECT_EQ(fastest(Seconds{std::nullopt, std::nullopt}), 0U);
}

Gemm product(std::int64_t m, std::int64_t n, std::int64_t k, Dtype input, std::int64_t batch = 1) {
    Gemm gemm;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.batch = batch;
    gemm.input = input;
    gemm.algorithm = model::ProductAlgorithm::timed;
    return gemm;
}

TEST(ProductChoice, IsOfLargeProductsOfNarrowNumbersThatAllowIt) {
    EXPECT_TRUE(worth_timing(product(8192, 4096, 4096, Dtype::bf16)));
    EXPECT_TRUE(worth_timing(product(8192, 4096, 4096, Dtype::fp8)));
    EXPECT_TRUE(worth_timing(product(8192, 4096, 4096, Dtype::e5m2)));
    EXPECT_FALSE(worth_timing(product(8192, 4096, 4096, Dtype::fp32)));
    EXPECT_FALSE(worth_timing(product(8192, 4096, 4096, Dtype::fp64)));
    Gemm shared = product(8192, 4096, 4096, Dtype::bf16);
    shared.algorithm = model::ProductAlgorithm::first;
    EXPECT_FALSE(worth_timing(shared));
    // 10 GFLOP: 2 · 2000 · 2500 · 1000.
    EXPECT_TRUE(worth_timing(product(2000, 2500, 1000, Dtype::bf16)));
    EXPECT_FALSE(worth_timing(product(2000, 2500, 999, Dtype::bf16)));
    EXPECT_TRUE(worth_timing(product(200, 2500, 1000, Dtype::bf16, 10)));
    // No overflow of 64 bits on the way.
    EXPECT_TRUE(worth_timing(product(std::int64_t{1} << 31, std::int64_t{1} << 31, 4, Dtype::bf16)));
}

}  // namespace
}  // namespace mgplan::runtime::cuda::product_choice_test
