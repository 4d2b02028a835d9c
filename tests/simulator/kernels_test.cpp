#include <gtest/gtest.h>

#include "simulator/compute/kernels.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator {
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

TEST_F(Kernels, AttentionStaysInSixteenBitsUnderFp8) {
    EXPECT_DOUBLE_EQ(times(Precision::fp8).attention_forward(1e12, 1024, 128), 1);
    cluster.peak_flops.erase(Precision::bf16);  // a cluster file that names fp8 alone still gives a finite time
    EXPECT_DOUBLE_EQ(times(Precision::fp8).attention_forward(1e12, 1024, 128), 0.5);
}

TEST_F(Kernels, TheDepthOfAProductFillsItsPipeline) {
    calibration.gemm_k_half = 1000;
    EXPECT_DOUBLE_EQ(times().gemm(4000, 4000, 1000), 2 * 2 * 4000.0 * 4000 * 1000 / 1e12);
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
    EXPECT_DOUBLE_EQ(times().grouped_gemm(1000, 2000, 3000, 4, 1000), 2 * times().gemm(1000, 2000, 3000, 4));
    EXPECT_DOUBLE_EQ(times().grouped_gemm(3000, 2000, 3000, 4, 3000), times().gemm(3000, 2000, 3000, 4) * 4 / 3);
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
    EXPECT_EQ(times().grouped_gemm(10, 10, 10, 0, 10), 0);
}

}  // namespace
}  // namespace mgplan::simulator
