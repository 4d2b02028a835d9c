#include "simulator/compute/calibration.hpp"

#include <cstdint>
#include <initializer_list>
#include <utility>

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {
namespace {

double sustained(const char* preset, Precision precision) {
    const ClusterSpec cluster = load_cluster(preset);
    const Calibration calibration = default_calibration(cluster);
    return cluster.peak(precision) * (precision == Precision::fp8 ? calibration.fp8_gemm_efficiency : calibration.gemm_efficiency);
}

TEST(Calibration, OnBlackwellSustainedProductsGrowWithThePowerOfTheBoard) {
    for (const Precision precision : {Precision::bf16, Precision::fp8}) {
        const double b200 = sustained("dgx-b200", precision);
        EXPECT_NEAR(sustained("dgx-b300", precision) / b200, 1.1, 0.01);
        EXPECT_NEAR(sustained("gb200-nvl72", precision) / b200, 1.2, 0.01);
        EXPECT_NEAR(sustained("gb300-nvl72", precision) / b200, 1.4, 0.02);
    }
    EXPECT_NEAR(default_calibration(load_cluster("gb200-nvl72")).gemm_efficiency, 0.505, 0.0005);
    {}
    ClusterSpec cluster = load_cluster("gb300-nvl72");
    cluster.gpu_watts = 10'000;
    EXPECT_EQ(default_calibration(cluster).gemm_efficiency, 0.776) << "what short bursts reach";
    EXPECT_EQ(default_calibration(cluster).fp8_gemm_efficiency, 0.763);
}

TEST(Calibration, OnBlackwellFp8FormatsAreAsFarApartAsTransformerEngineMeasured) {
    // B300, operands quantised before, three products of each of four linear layers over 15,872 rows (docs/examples/gemm_profiling): 6.812
    // ms with a scale a tensor, 7.161 in mxfp8, 3.764 in nvfp4. The card was cold; the formats' ratios are meant to hold.
    const ClusterSpec cluster = load_cluster("dgx-b300");
    const Calibration calibration = default_calibration(cluster);
    const auto seconds = [&](Precision precision, QuantisedFormat format) {
        const KernelTimes times(cluster, calibration, precision, 4, format);
        double sum = 0;
        for (const auto& [out, in] :
             std::initializer_list<std::pair<std::int64_t, std::int64_t>>{{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}}) {
            sum += times.gemm(15872, out, in) + times.gemm(15872, in, out) + times.gemm(out, in, 15872);
        }
        return sum;
    };
    const double tensorwise = seconds(Precision::fp8, QuantisedFormat::tensorwise);
    EXPECT_NEAR(seconds(Precision::fp8, QuantisedFormat::mxfp8) / tensorwise, 7.161 / 6.812, 0.005);
    EXPECT_NEAR(seconds(Precision::nvfp4, QuantisedFormat::nvfp4) / tensorwise, 3.764 / 6.812, 0.015);
}

TEST(Calibration, ExponentialsAreHalfOfTheForwardOfAttentionOnBlackwell) {
    const Calibration b200 = default_calibration(load_cluster("dgx-b200")), b300 = default_calibration(load_cluster("dgx-b300"));
    // 1,024 cycles of products and as many of exponentials; Blackwell Ultra halves these, fp8 those.
    ClusterSpec as_b200 = load_cluster("dgx-b300");
    as_b200.gpu_watts = 1000;
    const Calibration ultra = default_calibration(as_b200);
    EXPECT_NEAR(ultra.attention_forward * as_b200.peak(Precision::bf16) / (b200.attention_forward * 2.25e15), 2048.0 / 1536, 1e-9);
    EXPECT_NEAR(b200.attention_fp8_forward, 2048.0 / 1536, 1e-9);
    EXPECT_NEAR(b300.attention_fp8_forward, 1536.0 / 1024, 1e-9);
    EXPECT_GT(b300.attention_backward, b200.attention_backward);
    EXPECT_GT(b200.attention_fp8_backward, 1.2);
}

TEST(Calibration, AttentionOnBlackwellGrowsWithThePowerOfTheBoardUpToItsBursts) {
    const auto rates = [](const ClusterSpec& cluster) {
        const Calibration calibration = default_calibration(cluster);
        const double peak = cluster.peak(Precision::bf16);
        return std::pair(calibration.attention_forward * peak, calibration.attention_backward * peak);
    };
    const auto b200 = rates(load_cluster("dgx-b200")), gb200 = rates(load_cluster("gb200-nvl72"));
    EXPECT_NEAR(gb200.first / b200.first, 1.2, 0.01);
    EXPECT_NEAR(gb200.second / b200.second, 1.2, 0.01);
    ClusterSpec cluster = load_cluster("gb200-nvl72");
    cluster.gpu_watts = 10'000;
    EXPECT_NEAR(rates(cluster).first, 1.708e15, 1e6);
    EXPECT_NEAR(rates(cluster).second, 1.473e15, 1e6);
    EXPECT_NEAR(rates(load_cluster("gb300-nvl72")).first, 2.031e15, 1e6);
}

TEST(Calibration, ProductsInNvfp4HaveTheirOwnPeak) {
    const ClusterSpec cluster = load_cluster("gb200-nvl72");
    const Calibration calibration = default_calibration(cluster);
    const KernelTimes fp8(cluster, calibration, Precision::fp8), nvfp4(cluster, calibration, Precision::nvfp4);
    const double faster = fp8.gemm(16384, 16384, 1 << 20) / nvfp4.gemm(16384, 16384, 1 << 20);
    EXPECT_NEAR(faster, 1.88, 0.005);
    const ClusterSpec ultra = load_cluster("gb300-nvl72");
    const Calibration of_ultra = default_calibration(ultra);
    const KernelTimes fp8_there(ultra, of_ultra, Precision::fp8), nvfp4_there(ultra, of_ultra, Precision::nvfp4);
    const double faster_there = fp8_there.gemm(16384, 16384, 4096) / nvfp4_there.gemm(16384, 16384, 4096);
    EXPECT_NEAR(faster_there, 6.81 / 3.76, 0.1) << "its peak is three times fp8's";
    EXPECT_EQ(nvfp4.attention_forward(1e15, 4096, 128), fp8.attention_forward(1e15, 4096, 128));
    EXPECT_EQ(load_cluster("dgx-h100").peak(Precision::nvfp4), 0);
}

TEST(Calibration, HostsOfP5TakeLongerToLaunch) {
    const auto host = [](const char* name, NetworkKind kind) {
        ClusterSpec cluster = load_cluster(name);
        cluster.network_kind = kind;
        return default_calibration(cluster).host_kernel_seconds;
    };
    EXPECT_DOUBLE_EQ(host("dgx-h100", NetworkKind::efa), 1.4 * host("dgx-h100", NetworkKind::infiniband));
    EXPECT_EQ(host("dgx-b300", NetworkKind::efa), host("dgx-b300", NetworkKind::infiniband)) << "p6 has other hosts";
}

}  // namespace
}  // namespace mgplan::simulator
