#include <gtest/gtest.h>

#include "simulator/compute/kernels.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::kernels_test {
namespace {

class Kernels : public testing::Test {
protected:
    ClusterSpec cluster = round_cluster();
    Calibration calibration = ideal_calibration();
    [[nodiscard]] KernelTimes times(Precision precision = Precision::bf16) const { return {cluster, calibration, precision}; }
};

TEST_F(Kernels, ALargeProductTakesTwoFlopsPerMultiplyAdd) {
    EXPECT_DOUBLE_EQ(times().gemm(1000, 2000, 3000), 2 * 1000.0 * 2000 * 3000 / 1e12);
}

TEST_F(Kernels, AThinProductIsBoundByMemory) {
    // One row: every weight is read once for two FLOPs.
    EXPECT_DOUBLE_EQ(times().gemm(1, 1000, 1000), 2 * (1000.0 + 1e6 + 1000) / 1e12);
}

TEST_F(Kernels, PrecisionSetsTheRateAndTheBytes) {
    EXPECT_DOUBLE_EQ(times(Precision::fp32).gemm(1000, 2000, 3000), 2 * times().gemm(1000, 2000, 3000));
    EXPECT_DOUBLE_EQ(times(Precision::fp8).gemm(1000, 2000, 3000), times().gemm(1000, 2000, 3000) / 2);
    EXPECT_DOUBLE_EQ(times(Precision::fp32).gemm(1, 1000, 1000), 2 * times().gemm(1, 1000, 1000));
}

TEST_F(Kernels, BlocksOfFp8HaveARateOfTheirOwn) {
    calibration.mxfp8_rate = 0.5;
    const auto in = [&](QuantisedFormat format, Precision precision = Precision::fp8) {
        return KernelTimes(cluster, calibration, precision, 4, format).gemm(1000, 2000, 3000);
    };
    const double whole = times(Precision::fp8).gemm(1000, 2000, 3000);
    EXPECT_DOUBLE_EQ(in(QuantisedFormat::tensorwise), whole);
    EXPECT_DOUBLE_EQ(in(QuantisedFormat::delayed), whole);
    EXPECT_DOUBLE_EQ(in(QuantisedFormat::mxfp8), 2 * whole);
    EXPECT_DOUBLE_EQ(in(QuantisedFormat::blockwise), 2 * whole);
    EXPECT_DOUBLE_EQ(in(QuantisedFormat::mxfp8, Precision::bf16), times().gemm(1000, 2000, 3000)) << "what stays in 16 bits";
}

TEST_F(Kernels, AttentionStaysInSixteenBitsUnderFp8) {
    EXPECT_DOUBLE_EQ(times(Precision::fp8).attention_forward(1e12, 1024, 128), 1);
    cluster.peak_flops.erase(Precision::bf16);  // a cluster file that names fp8 alone still gives a finite time
    EXPECT_DOUBLE_EQ(times(Precision::fp8).attention_forward(1e12, 1024, 128), 0.5);
}

TEST_F(Kernels, TheDepthOfAProductFillsItsPipeline) {
    calibration.gemm_k_half = 1000;
    EXPECT_DOUBLE_EQ(times().gemm(4000, 4000, 1000), 2 * 2 * 4000.0 * 4000 * 1000 / 1e12);
}

TEST_F(Kernels, WhatATileTakesBesideItsMainLoopIsNoShorterInFp8) {
    calibration.gemm_k_half = 1000;
    const double loop = 2 * 4000.0 * 4000 * 3000 / 1e12, rest = loop / 3;
    EXPECT_DOUBLE_EQ(times().gemm(4000, 4000, 3000), loop + rest);
    EXPECT_DOUBLE_EQ(times(Precision::fp8).gemm(4000, 4000, 3000), loop / 2 + rest);
}

TEST_F(Kernels, HalfOfAnUnfilledWaveIsLost) {
    calibration.multiprocessors = 100;
    calibration.tile_m = calibration.tile_n = 128;
    // 50 tiles on 100 multiprocessors: half used, so 0.5 + 0.5 * 0.5 of the rate.
    EXPECT_DOUBLE_EQ(times().gemm(5 * 128, 10 * 128, 4096), 2 * 640.0 * 1280 * 4096 / 0.75e12);
    EXPECT_DOUBLE_EQ(times().gemm(10 * 128, 10 * 128, 4096), 2 * 1280.0 * 1280 * 4096 / 1e12);
}

TEST_F(Kernels, GroupedProductsOfFewRowsReachLess) {
    calibration.grouped_rows_half = 1000;
    EXPECT_DOUBLE_EQ(times().grouped_gemm(1000, 2000, 3000, 4), 2 * times().gemm(1000, 2000, 3000, 4));
    EXPECT_DOUBLE_EQ(times().grouped_gemm(3000, 2000, 3000, 4), times().gemm(3000, 2000, 3000, 4) * 4 / 3);
}

TEST_F(Kernels, AWeightGradientReadsAndWritesItsBuffer) {
    const double arithmetic = 2 * 1000.0 * 2000 * 3000 / 1e12, sum = 2 * 4 * 1000.0 * 2000 / 1e12;
    EXPECT_DOUBLE_EQ(times().weight_gradient(1000, 2000, 3000), arithmetic) << "behind the main loop";
    calibration.accumulation_share = 0.5;
    EXPECT_DOUBLE_EQ(times().weight_gradient(1000, 2000, 3000), arithmetic + sum / 2);
    EXPECT_DOUBLE_EQ(KernelTimes(cluster, calibration, Precision::bf16, 2).weight_gradient(1000, 2000, 3000), arithmetic + sum / 4)
        << "gradients in 16 bits";
    // Experts of one row each: the buffer is all the traffic that counts.
    EXPECT_DOUBLE_EQ(times().grouped_weight_gradient(1000, 2000, 1, 4), 4 * (2 * (1000.0 + 2000) + 8 * 1000.0 * 2000) / 1e12);
    calibration.grouped_weight_gradient = 0.5;
    calibration.accumulation_share = 0;
    EXPECT_DOUBLE_EQ(times().grouped_weight_gradient(1000, 2000, 3000, 4), 2 * 4 * arithmetic);
}

TEST_F(Kernels, FewHeadsWaitForTheLongestRow) {
    calibration.multiprocessors = 10;
    const double tile = 10 * 4.0 * 128 * 4096 * 128;
    calibration.attention_tail = 0.5;
    EXPECT_DOUBLE_EQ(times().attention_forward(4 * tile, 4096, 128), 4.5 * tile / 1e12);
    calibration.attention_critical = 3;
    EXPECT_DOUBLE_EQ(times().attention_forward(tile, 4096, 128), 3 * tile / 1e12);
    EXPECT_DOUBLE_EQ(times().attention_backward(tile, 4096, 128), tile / 1e12);
    calibration.attention_tail_backward = 2;
    EXPECT_DOUBLE_EQ(times().attention_backward(tile, 4096, 128), 3 * tile / 1e12);
}

TEST_F(Kernels, WideHeadsRunSlower) {
    calibration.attention_width_backward = 0.25;
    EXPECT_DOUBLE_EQ(times().attention_backward(1e12, 0, 192), 1.25);
    EXPECT_DOUBLE_EQ(times().attention_backward(1e12, 0, 64), 1);
}

TEST_F(Kernels, NotEveryAccessReachesTheBandwidthOfAStream) {
    calibration.softmax_share = 0.5;
    calibration.permutation_share = 0.25;
    calibration.cross_entropy_share = 0.2;
    EXPECT_DOUBLE_EQ(times().memory_bound(1e12, Traffic::softmax), 2);
    EXPECT_DOUBLE_EQ(times().memory_bound(1e12, Traffic::permutation), 4);
    EXPECT_DOUBLE_EQ(times().memory_bound(1e12, Traffic::cross_entropy), 5);
}

TEST_F(Kernels, EveryKernelHasAFixedCost) {
    calibration.kernel_seconds = 1e-6;
    EXPECT_DOUBLE_EQ(times().memory_bound(0), 1e-6);
    EXPECT_DOUBLE_EQ(times().memory_bound(1e12), 1 + 1e-6);
    EXPECT_DOUBLE_EQ(times().attention_backward(0, 0, 0), 1e-6);
}

TEST_F(Kernels, ProductsWithoutRowsCostNothing) {
    calibration.kernel_seconds = 1e-6;
    EXPECT_EQ(times().gemm(0, 10, 10), 0);
    EXPECT_EQ(times().grouped_gemm(10, 10, 10, 0), 0);
}

}  // namespace
}  // namespace mgplan::simulator::kernels_test
