// The collectives' formulas with the default calibrations against published tables. Size in bytes (all-reduce, all-to-all and
// reduce-scatter: the array a rank gives; all-gather: the array all end with), time in microseconds.
//   nccl A100, H100: stas00/ml-engineering@744d01e, network/README.md (all_reduce_perf, 8 A100); NVIDIA/dgxc-benchmarking@841f546,
//     nccl/README.md (8 H100).
//   Galvatron A100: PKU-DAIR/Hetu-Galvatron, profile_hardware/hardware_configs/sp_time_1nodes_8gpus_per_node.json.
//     Its smaller arrays take 1.1 to 1.5 times as long as vTrain's, in all-reduces of 2, 4 and 8; the defaults lie between.
//   vTrain A100: VIA-Research/vTrain@f8dda8473a, trace/a100/AR_GPU*_1M_1024M_LUT (nccl-tests' columns of a DGX's 8 GPUs: the mean of
//     its two times, out of place and in place).
//   XLA: openxla, xla/service/gpu/model/collective_interpolator_data.h (all groups of the node or rack at once; their 8-GPU H100
//     all-reduce is a ring, so it is left out here).
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::collective_curves_test {
namespace {

using Collective = double (*)(double, const GroupPath&, const Calibration&);
constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

struct Point {
    double bytes, microseconds;
};

struct Curve {
    const char* name;
    int compute_capability;
    int domain;
    std::int64_t ranks;
    Collective collective;
    std::vector<Point> points;
    double mean, worst;  ///< tolerated relative errors
};

ClusterSpec node(const Curve& curve) {
    ClusterSpec cluster = round_cluster();
    cluster.compute_capability = curve.compute_capability;
    cluster.nvlink_domain = curve.domain;
    cluster.nvlink = {curve.compute_capability >= 100 ? 900e9 : curve.compute_capability >= 90 ? 450e9 : 300e9, 1.9e-6};
    cluster.nvls = curve.compute_capability >= 90;
    return cluster;
}

class CollectiveCurve : public testing::TestWithParam<Curve> {};

TEST_P(CollectiveCurve, AgreesWithThePublishedTable) {
    const Curve& curve = GetParam();
    const ClusterSpec cluster = node(curve);
    const Calibration calibration = default_calibration(cluster);
    const std::array<GridAxis, 1> axes{{{Axis::tp, curve.ranks, 1}}};
    const GroupPath path = group_path(axes, cluster, calibration);
    double sum = 0;
    for (const Point& point : curve.points) {
        const double predicted = curve.collective(point.bytes, path, calibration) * 1e6;
        const double error = std::abs(predicted / point.microseconds - 1);
        EXPECT_LE(error, curve.worst) << point.bytes << " bytes: " << predicted << " us predicted, " << point.microseconds << " measured";
        sum += error;
    }
    EXPECT_LE(sum / static_cast<double>(curve.points.size()), curve.mean);
}

const std::vector<Curve> kCurves = {
    {"A100_8_all_reduce_nccl_tests",
     80,
     8,
     8,
     all_reduce_seconds,
     {{32 * kKiB, 43.83},
      {128 * kKiB, 51.76},
      {512 * kKiB, 80.4},
      {2 * kMiB, 101.4},
      {8 * kMiB, 133.5},
      {16 * kMiB, 276.6},
      {32 * kMiB, 424.0},
      {64 * kMiB, 684.6},
      {128 * kMiB, 1327.6},
      {256 * kMiB, 2420.6},
      {1 * kGiB, 8203.9},
      {16 * kGiB, 127997}},
     0.08,
     0.36},
    {"A100_4_all_reduce_Galvatron",
     80,
     8,
     4,
     all_reduce_seconds,
     {{4 * kMiB, 109.1}, {16 * kMiB, 218.3}, {32 * kMiB, 320.5}, {64 * kMiB, 584.8}, {256 * kMiB, 2070.9}, {1 * kGiB, 7187.4}},
     0.075,
     0.23},
    {"A100_2_all_reduce_Galvatron",
     80,
     8,
     2,
     all_reduce_seconds,
     {{4 * kMiB, 90.08}, {16 * kMiB, 143.4}, {32 * kMiB, 228.1}, {64 * kMiB, 392.4}, {256 * kMiB, 1388.7}, {1 * kGiB, 5159.4}},
     0.10,
     0.28},
    {"A100_8_all_reduce_vTrain",
     80,
     8,
     8,
     all_reduce_seconds,
     {{1 * kMiB, 92.47},
      {2 * kMiB, 93.11},
      {4 * kMiB, 94.92},
      {8 * kMiB, 132.05},
      {16 * kMiB, 231.7},
      {32 * kMiB, 356.9},
      {64 * kMiB, 579.75},
      {128 * kMiB, 1164.0},
      {256 * kMiB, 2160.15},
      {1 * kGiB, 8194.7}},
     0.09,
     0.21},
    {"A100_4_all_reduce_vTrain",
     80,
     8,
     4,
     all_reduce_seconds,
     {{1 * kMiB, 52.07},
      {2 * kMiB, 55.84},
      {4 * kMiB, 76.56},
      {8 * kMiB, 115.2},
      {16 * kMiB, 178.7},
      {32 * kMiB, 282.95},
      {64 * kMiB, 542.2},
      {128 * kMiB, 999.65},
      {256 * kMiB, 1928.35},
      {1 * kGiB, 7267.45}},
     0.085,
     0.21},
    {"A100_2_all_reduce_vTrain",
     80,
     8,
     2,
     all_reduce_seconds,
     {{1 * kMiB, 44.66},
      {2 * kMiB, 52.28},
      {4 * kMiB, 60.72},
      {8 * kMiB, 87.13},
      {16 * kMiB, 130.65},
      {32 * kMiB, 229.5},
      {64 * kMiB, 404.35},
      {128 * kMiB, 764.65},
      {256 * kMiB, 1455.1},
      {1 * kGiB, 5448.1}},
     0.05,
     0.10},
    {"A100_8_all_to_all_Galvatron",
     80,
     8,
     8,
     all_to_all_seconds,
     {{4 * kMiB, 110.9}, {16 * kMiB, 200.3}, {64 * kMiB, 399.7}, {256 * kMiB, 1298.1}, {1 * kGiB, 4815.1}},
     0.17,
     0.45},
    {"H100_8_all_reduce_nccl_tests",
     90,
     8,
     8,
     all_reduce_seconds,
     {{2 * kMiB, 42.21},
      {4 * kMiB, 54.19},
      {8 * kMiB, 83.04},
      {16 * kMiB, 123.8},
      {32 * kMiB, 199.3},
      {64 * kMiB, 324.7},
      {128 * kMiB, 586.4},
      {256 * kMiB, 1112.5},
      {1 * kGiB, 4029.4},
      {16 * kGiB, 62648}},
     0.12,
     0.36},
    {"H100_8_all_gather_XLA",
     90,
     8,
     8,
     all_gather_seconds,
     {{4 * kMiB, 47.1}, {16 * kMiB, 82.2}, {32 * kMiB, 129.4}, {64 * kMiB, 213.6}, {256 * kMiB, 729.3}, {1 * kGiB, 2730.3}},
     0.10,
     0.15},
    {"H100_8_reduce_scatter_XLA",
     90,
     8,
     8,
     reduce_scatter_seconds,
     {{4 * kMiB, 35.6}, {16 * kMiB, 86.6}, {32 * kMiB, 133.5}, {64 * kMiB, 218.6}, {256 * kMiB, 771.1}, {1 * kGiB, 2920.9}},
     0.15,
     0.45},
    {"H100_2_all_gather_XLA",
     90,
     8,
     2,
     all_gather_seconds,
     {{4 * kMiB, 30.7}, {16 * kMiB, 60.3}, {32 * kMiB, 96.5}, {64 * kMiB, 161.1}, {256 * kMiB, 549.3}, {1 * kGiB, 1996.6}},
     0.11,
     0.16},
    {"H100_8_all_to_all_XLA",
     90,
     8,
     8,
     all_to_all_seconds,
     {{4 * kMiB, 37.4}, {16 * kMiB, 105.6}, {64 * kMiB, 218.7}, {256 * kMiB, 759.0}, {1 * kGiB, 2796.5}},
     0.10,
     0.25},
    {"B200_8_all_reduce_XLA",
     100,
     8,
     8,
     all_reduce_seconds,
     {{4 * kMiB, 82.9}, {16 * kMiB, 131.1}, {32 * kMiB, 196.6}, {64 * kMiB, 314.3}, {256 * kMiB, 842.9}, {1 * kGiB, 3115.0}},
     0.18,
     0.26},
    {"B200_8_all_gather_XLA",
     100,
     8,
     8,
     all_gather_seconds,
     {{4 * kMiB, 43.0}, {16 * kMiB, 59.6}, {32 * kMiB, 84.0}, {64 * kMiB, 162.4}, {256 * kMiB, 433.1}, {1 * kGiB, 1590.3}},
     0.15,
     0.27},
    {"B200_4_reduce_scatter_XLA",
     100,
     8,
     4,
     reduce_scatter_seconds,
     {{4 * kMiB, 36.3}, {16 * kMiB, 84.5}, {32 * kMiB, 84.0}, {64 * kMiB, 126.9}, {256 * kMiB, 418.0}, {1 * kGiB, 1400.0}},
     0.12,
     0.27},
    {"B200_8_all_to_all_XLA",
     100,
     8,
     8,
     all_to_all_seconds,
     {{4 * kMiB, 53.4}, {16 * kMiB, 76.1}, {64 * kMiB, 165.3}, {256 * kMiB, 458.9}, {1 * kGiB, 1562.6}},
     0.12,
     0.28},
    {"GB200_64_all_reduce_XLA",
     100,
     72,
     64,
     all_reduce_seconds,
     {{16 * kMiB, 150.86}, {64 * kMiB, 342.06}, {256 * kMiB, 932.33}, {1 * kGiB, 2819.48}, {4 * kGiB, 9976.23}},
     0.21,
     0.32},
    {"GB200_64_all_gather_XLA",
     100,
     72,
     64,
     all_gather_seconds,
     {{64 * kMiB, 193.73}, {256 * kMiB, 515.67}, {1 * kGiB, 1584.62}, {4 * kGiB, 6337.19}},
     0.15,
     0.35},
};

INSTANTIATE_TEST_SUITE_P(Published, CollectiveCurve, testing::ValuesIn(kCurves),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Bytes/s of the array that nccl-tests printed for an all-to-all over several nodes (simulator/compute/calibration.cpp has the sources).
TEST(CollectiveCurves, AllToAllsOverTheNetworkGrowWithTheBytesForAPeer) {
    struct Measured {
        const char* cluster;
        std::int64_t ranks;
        double bytes, rate;
    };
    const std::vector<Measured> measured = {
        {"dgx-h100", 16, 128 * kMiB, 73.38e9},  {"dgx-h100", 16, 1 * kGiB, 82.91e9},    {"dgx-h100", 32, 32 * kMiB, 35.56e9},
        {"dgx-h100", 32, 128 * kMiB, 54.26e9},  {"dgx-h100", 64, 32 * kMiB, 29.13e9},   {"dgx-h100", 64, 128 * kMiB, 36.77e9},
        {"dgx-h100", 64, 1 * kGiB, 49.08e9},    {"dgx-h100", 128, 128 * kMiB, 31.69e9}, {"dgx-h100", 256, 32 * kMiB, 19.79e9},
        {"dgx-h100", 256, 128 * kMiB, 27.13e9}, {"dgx-h100", 64, 64 * kMiB, 41.04e9},   {"dgx-b300", 32, 56 * kMiB, 97.03e9},
        {"dgx-b300", 64, 56 * kMiB, 75.17e9},   {"dgx-b300", 256, 56 * kMiB, 54.91e9},
    };
    double sum = 0, without = 0;
    for (const Measured& one : measured) {
        const ClusterSpec cluster = load_cluster(one.cluster);
        const Calibration calibration = default_calibration(cluster);
        const std::array<GridAxis, 1> axes{{{Axis::dp, one.ranks, 1}}};
        GroupPath path = group_path(axes, cluster, calibration);
        const double seconds = one.bytes / one.rate, error = std::abs(all_to_all_seconds(one.bytes, path, calibration) / seconds - 1);
        EXPECT_LE(error, 0.25) << one.cluster << ' ' << one.ranks << ' ' << one.bytes;
        sum += error;
        path.message_growth = 0;
        without += std::abs(all_to_all_seconds(one.bytes, path, calibration) / seconds - 1);
    }
    EXPECT_LE(sum, 0.12 * static_cast<double>(measured.size()));
    EXPECT_GE(without, 0.19 * static_cast<double>(measured.size())) << "at the full rate whatever the message";
}

}  // namespace
}  // namespace mgplan::simulator::collective_curves_test
