// From a cluster file's measurements to the time model's parameters. "Measured" times are those of the model itself with known
// parameters, which the fit must find again.
#include "simulator/cluster_parameters.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator::cluster_parameters_test {
namespace {

/// A cluster whose measurements are what the model says with `truth`.
ClusterSpec measured_with(const Calibration& truth) {
    ClusterSpec cluster = load_cluster("dgx-h200");
    ClusterCalibration calibration;
    calibration.device = "cuda";
    const KernelTimes times(cluster, truth, Precision::bf16);
    for (const std::int64_t bytes : {1 << 18, 1 << 21, 1 << 24, 1 << 28})
        calibration.kernels.push_back({"add bf16", bytes, {times.memory_bound(static_cast<double>(bytes)), 0, 9}});
    for (const std::int64_t n : {1024, 4096, 14336}) {
        for (const std::int64_t k : {512, 2048, 8192})
            calibration.products.push_back({8192, n, k, false, true, false, Dtype::bf16, {times.gemm(8192, n, k), 0, 9}});
    }
    for (const std::int64_t rows : {64, 256, 1024, 4096}) {
        for (const std::int64_t k : {2048, 7168}) {
            calibration.grouped_products.push_back(
                {8, rows, 2048, k, true, false, Dtype::bf16, {times.grouped_gemm(rows, 2048, k, 8), 0, 9}});
            calibration.grouped_products.push_back(
                {8, 2048, k, rows, false, true, Dtype::bf16, {times.grouped_weight_gradient(2048, k, rows, 8), 0, 9}});
        }
    }
    for (const std::int64_t kernels : {16, 64, 256})
        calibration.graphs.push_back({kernels, 512 / kernels, 512 * truth.graph_node_bytes, 0, 5});
    for (const std::int64_t sequence : {2048, 8192}) {
        const double flops = 2.0 * 2 * 128 * 32 * static_cast<double>(sequence * (sequence + 1));
        calibration.attention.push_back(
            {sequence, 1, 32, 8, 128, 128, false, Dtype::bf16, flops, {times.attention_forward(flops, sequence, 128), 0, 9}});
        calibration.attention.push_back(
            {sequence, 1, 32, 8, 128, 128, true, Dtype::bf16, 2.5 * flops, {times.attention_backward(2.5 * flops, sequence, 128), 0, 9}});
    }
    const std::array<GridAxis, 1> axes{GridAxis{Axis::tp, 8, 1}};
    const GroupPath path = group_path(axes, cluster, truth);
    for (const std::int64_t bytes : {1 << 12, 1 << 18, 1 << 24, 1 << 26, 1 << 28, 1 << 30}) {
        const auto b = static_cast<double>(bytes);
        calibration.collectives.push_back({"tp", "all_gather", 8, bytes, {all_gather_seconds(b, path, truth), 0, 9}});
        calibration.collectives.push_back({"tp", "all_reduce", 8, bytes, {all_reduce_seconds(b, path, truth), 0, 9}});
        calibration.collectives.push_back({"tp", "all_to_all", 8, bytes, {all_to_all_seconds(b, path, truth), 0, 9}});
        // Beyond one machine, where links of others are the slowest: nothing follows for NVLink.
        calibration.collectives.push_back({"dp", "all_gather", 4, bytes, {1e3 * all_gather_seconds(b, path, truth), 0, 9}, 4});
    }
    cluster.calibration = calibration;
    return cluster;
}

TEST(ClusterParameters, AreFoundAgainInWhatTheModelSaysWithThem) {
    Calibration truth = default_calibration(load_cluster("dgx-h200"));
    truth.gemm_efficiency = 0.61;
    truth.gemm_k_half = 300;
    truth.grouped_rows_half = 210;
    truth.grouped_weight_gradient = 0.83;
    truth.graph_node_bytes = 41'000;
    truth.attention_forward = 0.41;
    truth.attention_backward = 0.37;
    truth.memory_efficiency = 0.77;
    truth.kernel_seconds = 4e-6;
    truth.nvlink_efficiency = 0.71;
    truth.bandwidth_growth = 0.09;
    truth.nvls_efficiency = 0.98;
    truth.nvls_seconds = 33e-6;
    truth.all_to_all_efficiency = 0.66;
    truth.collective_seconds = 21e-6;
    const auto fitted = fitted_parameters(measured_with(truth));
    const auto expect = [&](const char* name, double value, double share) {
        ASSERT_TRUE(fitted.contains(name)) << name;
        EXPECT_NEAR(fitted.at(name).value, value, share * value) << name;
        EXPECT_FALSE(fitted.at(name).source.empty()) << name;
    };
    expect("kernel_seconds", 4e-6, 0.01);
    expect("memory_efficiency", 0.77, 0.001);
    expect("gemm_efficiency", 0.61, 0.01);
    expect("gemm_k_half", 300, 0.04);  // the next point of the grid
    expect("grouped_rows_half", 210, 0.1);
    expect("grouped_weight_gradient", 0.83, 0.03);
    expect("graph_node_bytes", 41'000, 0);
    expect("attention_forward", 0.41, 0.01);
    expect("attention_backward", 0.37, 0.01);
    expect("nvlink_efficiency", 0.71, 0.01);
    expect("bandwidth_growth", 0.09, 0.01);
    expect("nvls_efficiency", 0.98, 0.01);
    expect("nvls_seconds", 33e-6, 0.2);
    expect("all_to_all_efficiency", 0.66, 0.01);
    expect("collective_seconds", 21e-6, 0.2);
    // What was not measured stays at its default.
    EXPECT_FALSE(fitted.contains("network_efficiency"));
    EXPECT_FALSE(fitted.contains("host_kernel_seconds"));
    EXPECT_FALSE(fitted.contains("issue_seconds"));
    ClusterSpec issued = measured_with(truth);
    issued.calibration->launch = {2.5e-6, 0, 100};
    EXPECT_EQ(fitted_parameters(issued).at("issue_seconds").value, 2.5e-6);

    // With them the model says the measured times, the products within the grid's step.
    ClusterSpec cluster = measured_with(truth);
    cluster.calibration->parameters = fitted;
    const Calibration found = calibration_of(cluster);
    const KernelTimes times(cluster, found, Precision::bf16);
    for (const auto& each : cluster.calibration->products)
        EXPECT_NEAR(times.gemm(each.m, each.n, each.k) / each.time.seconds, 1, 0.01) << each.n << " " << each.k;
    for (const auto& each : cluster.calibration->grouped_products) {
        const double said = each.accumulate ? times.grouped_weight_gradient(each.m, each.n, each.k, each.groups)
                                            : times.grouped_gemm(each.m, each.n, each.k, each.groups);
        EXPECT_NEAR(said / each.time.seconds, 1, 0.03) << each.m << " " << each.n << " " << each.k;
    }
}

TEST(ClusterParameters, StandAboveTheDefaultsAndEachHasItsField) {
    ClusterSpec cluster = load_cluster("dgx-a100-80g");
    const Calibration plain = calibration_of(cluster);
    EXPECT_EQ(plain.gemm_efficiency, default_calibration(cluster).gemm_efficiency);
    cluster.calibration = ClusterCalibration{};
    for (const auto& parameter : calibration_parameters()) {
        const double value = parameter.low > 0 ? (parameter.whole ? 77 : parameter.low) : (parameter.whole ? 7 : 0.125);
        cluster.calibration->parameters = {{std::string(parameter.name), {value, "a test"}}};
        const Calibration changed = calibration_of(cluster);
        // Every name reaches a field, and no other one's: the sum of what differs is one field.
        const auto fields = [](const Calibration& c) {
            return std::vector<double>{c.gemm_efficiency,
                                       c.fp8_gemm_efficiency,
                                       c.gemm_k_half,
                                       static_cast<double>(c.multiprocessors),
                                       static_cast<double>(c.tile_m),
                                       static_cast<double>(c.tile_n),
                                       c.grouped_rows_half,
                                       c.grouped_weight_gradient,
                                       c.attention_forward,
                                       c.attention_backward,
                                       c.attention_tail,
                                       c.memory_efficiency,
                                       c.kernel_seconds,
                                       c.checkpoint_host_seconds,
                                       c.host_kernel_seconds,
                                       c.issue_seconds,
                                       c.nvlink_efficiency,
                                       c.small_group_loss,
                                       c.bandwidth_growth,
                                       c.nvls_efficiency,
                                       c.nvls_seconds,
                                       c.all_to_all_efficiency,
                                       c.pcie_efficiency,
                                       c.network_efficiency,
                                       c.collective_seconds,
                                       c.low_latency_seconds,
                                       c.low_latency_bandwidth,
                                       c.overlap_cost,
                                       c.expert_overlap_cost,
                                       static_cast<double>(c.driver_bytes),
                                       static_cast<double>(c.module_bytes),
                                       static_cast<double>(c.graph_node_bytes),
                                       static_cast<double>(c.gemm_workspace_bytes),
                                       static_cast<double>(c.engine_workspace_bytes),
                                       c.optimizer_fixed_seconds,
                                       c.iteration_fixed_seconds};
        };
        const auto before = fields(plain), after = fields(changed);
        int different = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
            if (before[i] == after[i]) continue;
            ++different;
            EXPECT_EQ(after[i], value) << parameter.name;
        }
        EXPECT_EQ(different, 1) << parameter.name;
    }
}

TEST(ClusterParameters, FollowTheFastestProductsThatWereMeasured) {
    ClusterSpec cluster = load_cluster("dgx-h100");
    const Calibration known = calibration_of(cluster);
    cluster.measured_products = {{Precision::bf16, 794e12 / 2}};
    const Calibration half = calibration_of(cluster);
    EXPECT_NEAR(half.gemm_efficiency, known.gemm_efficiency / 2, 1e-3);
    EXPECT_NEAR(half.attention_backward, known.attention_backward / 2, 1e-3);
    EXPECT_NEAR(half.fp8_gemm_efficiency, known.fp8_gemm_efficiency / 2, 1e-3) << "no fp8 product is known";
    EXPECT_DOUBLE_EQ(half.memory_efficiency, known.memory_efficiency);
    ClusterSpec older = load_cluster("dgx-a100-80g");
    older.measured_products = {{Precision::bf16, 794e12 / 989e12 * older.peak(Precision::bf16)}};
    EXPECT_NEAR(calibration_of(older).gemm_efficiency, known.gemm_efficiency, 1e-3) << "H100's share on any architecture";
    cluster.measured_products[Precision::fp8] = 1403e12;
    EXPECT_NEAR(calibration_of(cluster).fp8_gemm_efficiency, known.fp8_gemm_efficiency, 1e-3);
}

TEST(ClusterParameters, FillWavesOfComputeUnitsWithTilesOf256) {
    // Published products, TFLOP/s, of GPUs whose best is 1,222.9 (8,192 cubed, fp8) and 1,565 (12,288 by 8,192 by 8,192, bf16).
    struct Product {
        const char* cluster;
        Precision precision;
        std::int64_t best_m, best_n, best_k;
        double best;
        std::int64_t m, n, k;
        double measured;
    };
    constexpr std::int64_t kFp8Side = 8192;
    const std::vector<Product> products{
        {"mi300x", Precision::fp8, kFp8Side, kFp8Side, kFp8Side, 1222.9, 2048, 2048, 2048, 726.9},
        {"mi300x", Precision::fp8, kFp8Side, kFp8Side, kFp8Side, 1222.9, 4096, 4096, 4096, 1085.4},
        {"mi355x", Precision::bf16, 12288, 8192, 8192, 1565, 4096, 8448, 7168, 1313.3},
        {"mi355x", Precision::bf16, 12288, 8192, 8192, 1565, 4096, 1536, 7168, 944.4},
    };
    const auto error = [](const ClusterSpec& cluster, const Product& product) {
        Calibration calibration = calibration_of(cluster);
        calibration.kernel_seconds = 0;
        const KernelTimes times(cluster, calibration, product.precision);
        const auto rate = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
            return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / times.gemm(m, n, k);
        };
        const double relative = rate(product.m, product.n, product.k) / rate(product.best_m, product.best_n, product.best_k);
        return std::abs(relative * product.best / product.measured - 1);
    };
    double now = 0, as_h100 = 0;
    for (const Product& product : products) {
        ClusterSpec cluster = load_cluster(product.cluster);
        now += error(cluster, product) / 4;
        cluster.compute_units = 0;
        as_h100 += error(cluster, product) / 4;
    }
    EXPECT_LT(now, 0.06);
    EXPECT_GT(as_h100, 0.25);
    const Calibration mi300x = calibration_of(load_cluster("mi300x"));
    EXPECT_EQ(mi300x.multiprocessors, 304);
    EXPECT_EQ(calibration_of(load_cluster("mi250x")).multiprocessors, 108) << "no tile of its kernels is published";
}

TEST(ClusterParameters, AttentionOfAMDWaitsForTilesOfAllComputeUnits) {
    // ROCm/aiter, op_tests/cpp/mha/README.md at 0403bcd: TFLOP/s of causal attention with heads of 128, forward and backward; the backward
    // sums in fp32 on MI300X, in 16 bits on MI355X.
    struct Shape {
        double batch, heads;
        std::int64_t keys;
        std::array<double, 2> mi300x, mi355x;
    };
    const std::vector<Shape> shapes{{1, 32, 2048, {255.1, 295.9}, {577.3, 506.6}},   {1, 64, 2048, {392.4, 257.9}, {936.4, 725.6}},
                                    {4, 64, 2048, {425.7, 326.8}, {899.8, 796.8}},   {4, 32, 4096, {486.7, 416.5}, {1130.1, 957.4}},
                                    {8, 64, 4096, {509.3, 402.2}, {1190.3, 972.3}},  {8, 32, 8192, {537.4, 441.4}, {1316.8, 1066.7}},
                                    {1, 64, 16384, {541.6, 412.0}, {1392.5, 1162.8}}};
    const auto mean_error = [&](bool backward, double tail_of_h100) {
        double sum = 0;
        for (const char* gpu : {"mi300x", "mi355x"}) {
            const ClusterSpec cluster = load_cluster(gpu);
            Calibration calibration = calibration_of(cluster);
            if (tail_of_h100 > 0) calibration.attention_tail = calibration.attention_tail_backward = tail_of_h100 / cluster.compute_units;
            const KernelTimes times(cluster, calibration, Precision::bf16);
            for (const Shape& shape : shapes) {
                const auto keys = static_cast<double>(shape.keys);
                const double flops = (backward ? 2.5 : 1) * 2 * shape.batch * shape.heads * keys * keys * 128;
                const double seconds =
                    backward ? times.attention_backward(flops, shape.keys, 128) : times.attention_forward(flops, shape.keys, 128);
                const auto& measured = cluster.compute_units == 304 ? shape.mi300x : shape.mi355x;
                sum += std::abs(flops / seconds / 1e12 / measured.at(backward ? 1 : 0) - 1);
            }
        }
        return sum / static_cast<double>(2 * shapes.size());
    };
    const double h100 = calibration_of(load_cluster("dgx-h100")).attention_tail * 132;
    EXPECT_LT(mean_error(false, 0), 0.11);
    EXPECT_GT(mean_error(false, h100), 0.13);
    EXPECT_LT(mean_error(true, 0), 0.14);
    EXPECT_GT(mean_error(true, h100), 0.22);
}

TEST(ClusterParameters, GroupedProductsOfAMDNeedMoreRows) {
    // TFLOP/s of grouped_gemm on MI355X, whose fastest product is 1,565: rows of an expert, N, K; 16 experts.
    struct Product {
        std::int64_t rows, n, k;
        double measured;
    };
    const std::vector<Product> products{{2048, 4096, 7168, 1063}, {2048, 7168, 4096, 1139}, {4096, 4096, 7168, 1507},
                                        {4096, 7168, 4096, 1526}, {2048, 7168, 2048, 1219}, {2048, 2048, 7168, 1261},
                                        {4096, 7168, 2048, 1298}, {4096, 2048, 7168, 1317}};
    const ClusterSpec cluster = load_cluster("mi355x");
    const auto mean_error = [&](double rows_half) {
        Calibration calibration = calibration_of(cluster);
        calibration.kernel_seconds = 0;
        calibration.grouped_rows_half = rows_half;
        const KernelTimes times(cluster, calibration, Precision::bf16);
        const double best = 12288.0 * 8192 * 8192 / times.gemm(12288, 8192, 8192);
        double sum = 0;
        for (const auto& [rows, n, k, measured] : products) {
            const double rate = 16.0 * static_cast<double>(rows * n * k) / times.grouped_gemm(rows, n, k, 16);
            sum += std::abs(rate / best * 1565 / measured - 1);
        }
        return sum / static_cast<double>(products.size());
    };
    EXPECT_LT(mean_error(calibration_of(cluster).grouped_rows_half), 0.07);
    EXPECT_GT(mean_error(calibration_of(load_cluster("dgx-h100")).grouped_rows_half), 0.15);
}

TEST(ClusterParameters, AreTwiceAsUnsureWhereEfficienciesAreAssumed) {
    ClusterSpec cluster = load_cluster("mi300x");
    const Calibration assumed = calibration_of(cluster), known = calibration_of(load_cluster("dgx-h200"));
    EXPECT_DOUBLE_EQ(assumed.faster.run, 2 * known.faster.run);
    EXPECT_DOUBLE_EQ(assumed.slower.products, 2 * known.slower.products);
    EXPECT_DOUBLE_EQ(assumed.slower.communication, 2 * known.slower.communication);
    EXPECT_TRUE(assumed_efficiencies(cluster));
    cluster.calibration = measured_with(known).calibration;
    EXPECT_FALSE(assumed_efficiencies(cluster)) << "what was measured is sure";
    EXPECT_FALSE(assumed_efficiencies(load_cluster("dgx-h200")));
}

TEST(ClusterParameters, NameTheBytesThatAreAssumedUntilTheFileSaysThem) {
    ClusterSpec cluster = load_cluster("dgx-h100");
    EXPECT_EQ(assumed_module_bytes(cluster), "274 MiB of loaded kernels on each GPU");
    EXPECT_EQ(assumed_graph_node_bytes(cluster), "64 KiB of device memory for each kernel of a CUDA graph");
    cluster.calibration = ClusterCalibration{};
    cluster.calibration->parameters = {{"module_bytes", {1e8, "nvidia-smi"}}};
    EXPECT_FALSE(assumed_module_bytes(cluster).has_value());
    EXPECT_TRUE(assumed_graph_node_bytes(cluster).has_value());
    cluster.calibration->parameters = {{"graph_node_bytes", {2e4, "nvidia-smi"}}};
    EXPECT_FALSE(assumed_graph_node_bytes(cluster).has_value());
    EXPECT_EQ(calibration_of(cluster).graph_node_bytes, 20000);
}

TEST(ClusterParameters, OfCpuRanksKnowNoTilesNoLaunchesAndNoLibrariesMemory) {
    ClusterSpec cluster = load_cluster("dgx-a100-80g");
    cluster.calibration = ClusterCalibration{};
    cluster.calibration->device = "cpu";
    const auto fitted = fitted_parameters(cluster);
    EXPECT_EQ(fitted.at("multiprocessors").value, 1);
    EXPECT_EQ(fitted.at("host_kernel_seconds").value, 0);
    EXPECT_EQ(fitted.at("issue_seconds").value, 0) << "whatever a launch took";
    EXPECT_EQ(fitted.at("driver_bytes").value, 0);
    EXPECT_FALSE(fitted.contains("gemm_efficiency"));  // nothing was measured
}

TEST(ClusterParameters, AreScaledWithinWhatIsPossible) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    const Calibration before = calibration_of(cluster);
    const ClusterSpec scaled = with_scaled_efficiencies(cluster, 1.2, 0.8, "a job");
    const Calibration after = calibration_of(scaled);
    EXPECT_DOUBLE_EQ(after.gemm_efficiency, 1.2 * before.gemm_efficiency);
    EXPECT_DOUBLE_EQ(after.memory_efficiency, 1.2 * before.memory_efficiency);
    EXPECT_DOUBLE_EQ(after.nvlink_efficiency, 0.8 * before.nvlink_efficiency);
    EXPECT_DOUBLE_EQ(after.network_efficiency, 0.8 * before.network_efficiency);
    EXPECT_EQ(after.kernel_seconds, before.kernel_seconds);
    // Nothing becomes better than its data sheet that was not before.
    EXPECT_EQ(calibration_of(with_scaled_efficiencies(cluster, 5, 1, "a job")).gemm_efficiency, 1);
    EXPECT_TRUE(with_scaled_efficiencies(cluster, 1, 1, "a job").calibration->parameters.empty());
}

}  // namespace
}  // namespace mgplan::simulator::cluster_parameters_test
