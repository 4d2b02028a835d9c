// Scans by chunks as a GPU runs them, products and kernels in between, against the CPU's loops: chunks of all lengths, groups of all sizes,
// and more chunks than are worked on at once.

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/scratch.hpp"
#include "model/ops/state_space.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::state_space_kernels_test {
namespace {

using namespace model;

/// y, and the gradients of its inputs, of its raw steps, of dt_bias, A_log and D. `decay` is added to A_log.
std::vector<std::vector<double>> run_scan(Device& device, Dtype dtype, const StateSpaceSizes& sizes, double decay = 0) {
    Maker maker(device, dtype);
    const Tensor mixed = maker.random({sizes.rows(), sizes.width()}), dy = maker.random({sizes.rows(), sizes.inner()});
    if (sizes.fixed.used())
        return {read(state_space_scan({.mixed = mixed}, sizes)), read(state_space_scan_backward(dy, {.mixed = mixed}, sizes, {}, {}))};
    const Tensor projected = maker.random({sizes.rows(), sizes.heads + 2}), step_bias = maker.random({sizes.heads});
    std::vector<double> rates = maker.numbers(sizes.heads);
    for (double& rate : rates) rate += decay;
    const StateSpaceInputs in{mixed, projected, 1, step_bias, make(device, {sizes.heads}, dtype, rates), maker.random({sizes.heads})};
    const Tensor d_projected = maker.zeros(projected.shape());
    const Dtype kept = statistics_dtype(dtype);
    const StateSpaceGradients gradients{maker.zeros({sizes.heads}, kept), maker.zeros({sizes.heads}, kept),
                                        maker.zeros({sizes.heads}, kept)};
    std::vector<std::vector<double>> results{read(state_space_scan(in, sizes))};
    for (const Tensor& tensor : {state_space_scan_backward(dy, in, sizes, d_projected, gradients), d_projected, gradients.step_bias,
                                 gradients.log_decay, gradients.skip})
        results.push_back(read(tensor));
    return results;
}

void expect_the_cpus(Dtype dtype, const StateSpaceSizes& sizes, double decay = 0) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const auto expected = run_scan(cpu, dtype, sizes, decay), actual = run_scan(gpu, dtype, sizes, decay);
    // In bf16 factors of products are rounded, as in Triton's kernels of mamba_ssm.
    const double tolerance = dtype == Dtype::bf16 ? 0.015 : dtype == Dtype::fp32 ? 4e-6 : 1e-12;
    const double sums = dtype == Dtype::bf16 ? 1 : 10;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i].size(), expected[i].size());
        // Gradients of steps and decays are the difference of two sums of about one, which may be alike, times the decay's rate.
        const double scale = std::max(model::largest(expected[i]), i >= 2 && i <= 4 ? sums * std::exp(decay) : 0);
        for (std::size_t k = 0; k < actual[i].size(); ++k) {
            ASSERT_NEAR(actual[i][k], expected[i][k], tolerance * scale)
                << "result " << i << ", value " << k << ", " << sizes.places << " places, chunks of " << sizes.chunk << ", groups "
                << sizes.groups;
        }
    }
}

class ScanKernels : public testing::TestWithParam<Dtype> {};

TEST_P(ScanKernels, AreTheCpusWhateverChunksAndGroups) {
    for (const std::int64_t places : {1, 5, 12, 13}) {
        for (const std::int64_t chunk : {1, 4, 6, 64}) {
            for (const std::int64_t groups : {1, 2, 4})
                expect_the_cpus(GetParam(),
                                {.places = places, .batch = 2, .heads = 4, .head_dim = 3, .groups = groups, .state = 5, .chunk = chunk});
        }
    }
    expect_the_cpus(GetParam(), {.places = 13,
                                 .batch = 1,
                                 .heads = 2,
                                 .head_dim = 4,
                                 .groups = 2,
                                 .state = 4,
                                 .chunk = 4,
                                 .fixed = {.factor = 0.7, .slope = 0.4, .first_head = 1}});
}

TEST_P(ScanKernels, AreTheSameByPacks) {
    const StateSpaceSizes sizes{.places = 11, .batch = 2, .heads = 4, .head_dim = 8, .groups = 2, .state = 8, .chunk = 4};
    expect_the_cpus(GetParam(), sizes);
    EmulatedDevice gpu(emulated_traits(false));
    (void)run_scan(gpu, GetParam(), sizes);
    // Two blocks' operands twice each way, outputs once; in bf16 states once forward and twice backward.
    EXPECT_EQ(gpu.launcher().packed, GetParam() == Dtype::bf16 ? 10 + 6 : 10);
}

// Weights are whole matrices: what later places would give to earlier ones is exp of large numbers, which nothing may read.
TEST_P(ScanKernels, LeaveOutWhatIsNotSeenHoweverLarge) {
    const StateSpaceSizes sizes{.places = 20, .batch = 1, .heads = 2, .head_dim = 3, .groups = 1, .state = 4, .chunk = 10};
    expect_the_cpus(GetParam(), sizes, 6);
    EmulatedDevice gpu(emulated_traits(false));
    for (const auto& values : run_scan(gpu, GetParam(), sizes, 6)) {
        for (const double value : values) EXPECT_TRUE(std::isfinite(value));
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, ScanKernels, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(ScanKernelsByBlocks, TakeAsManyChunksAtOnceAsTheWorkspaceHolds) {
    const StateSpaceSizes sizes{.places = 2 * 256 + 3, .batch = 1, .heads = 256, .head_dim = 1, .groups = 1, .state = 1, .chunk = 256};
    const ScanWorkspace space = scan_workspace(emulated_traits(false), Dtype::fp64, sizes, true);
    EXPECT_EQ(space.block, 1) << "weights of a chunk are 128 MiB, and as much is for their gradients";
    EXPECT_EQ(space.blocks, 3);
    expect_the_cpus(Dtype::fp64, sizes);
}

class LastScans final : public OpListener {
public:
    void on_op(const OpRecord& record) override {
        if (record.name == "state_space_scan" || record.name == "state_space_scan_backward") records.push_back(record);
    }
    std::vector<OpRecord> records;
};

TEST(ScanKernelsByBlocks, MultiplyAndMoveWhatTheRecordSays) {
    const StateSpaceSizes trained{.places = 12, .batch = 2, .heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 4};
    StateSpaceSizes fixed = trained;
    fixed.fixed = {.factor = 0.7, .slope = 0.4};
    for (const StateSpaceSizes& sizes : {trained, fixed}) {
        for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
            EmulatedDevice gpu(emulated_traits(false));
            LastScans scans;
            gpu.set_listener(&scans);
            (void)run_scan(gpu, dtype, sizes);
            gpu.set_listener(nullptr);
            ASSERT_EQ(scans.records.size(), 2U);
            EXPECT_EQ(scans.records[0].own.product_flops + scans.records[1].own.product_flops, gpu.launcher().multiplied);
            EXPECT_EQ(scans.records[0].own.bytes + scans.records[1].own.bytes, gpu.launcher().moved);
        }
    }
}

// Nemotron-H 8B, 4,096 places on one rank: what a scan takes beside its states is bounded.
TEST(ScanKernelsByBlocks, StayWithin256Mebibytes) {
    const StateSpaceSizes sizes{.places = 4096, .batch = 1, .heads = 128, .head_dim = 64, .groups = 8, .state = 128};
    const KernelTraits card = emulated_traits(false);
    for (const bool backward : {false, true}) {
        const ScanWorkspace space = scan_workspace(card, Dtype::bf16, sizes, backward);
        EXPECT_GT(space.block, 1);
        EXPECT_EQ(space.blocks, (32 + space.block - 1) / space.block);
        EXPECT_LE(space.total - space.library_bytes, std::int64_t{256} << 20);
        EXPECT_EQ(space.library_bytes, matmul_workspace_bytes(card));
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::state_space_kernels_test
