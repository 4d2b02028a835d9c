#include "simulator/layers/quantisation.hpp"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "simulator/layers/layer_costs.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::quantisation_test {
namespace {

constexpr double kByte = 1e-12;        ///< seconds
constexpr double kScale = 64 * kByte;  ///< above the scales of one tensor, far below a kernel here

/// A rank with 4,096 tokens on a GPU that moves a byte in a picosecond and multiplies fp8 in one layout alone.
class Quantisation : public testing::Test {
protected:
    Workload workload = workload_of(gpt(2), 8, 8, 4096);
    Calibration calibration = ideal_calibration();
    LayoutPaths paths;
    std::unique_ptr<KernelTimes> kernels;
    Shard shard;

    Quantisation() {
        workload.training.precision = Precision::fp8;
        workload.cluster.compute_capability = 90;
        paths.tp = paths.etp = {.ranks = 4, .ranks_per_domain = 4, .inside = 1e9, .network = 1e9};
        renew();
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.paths = &paths;
        shard.tokens = shard.tokens_outside = 4096;
    }
    void renew() {
        kernels = std::make_unique<KernelTimes>(workload.cluster, calibration, workload.training.precision);
        shard.kernels = shard.storage_kernels = kernels.get();
    }
    void recipe(Fp8Recipe recipe, int compute_capability) {
        workload.training.megatron.fp8_recipe = recipe;
        workload.cluster.compute_capability = compute_capability;
    }
    void sequence_parallel() {
        shard.tp = 4;
        shard.tokens_outside = 1024;
        shard.sequence_parallel = true;
    }
    static void expect(const PieceCost& cost, double forward_bytes, double backward_bytes) {
        EXPECT_NEAR(cost.forward, forward_bytes * kByte, kScale);
        EXPECT_NEAR(cost.backward, backward_bytes * kByte, kScale);
    }
    /// Compute seconds of `piece` that go to casts: on GPUs without fp8 there are none.
    [[nodiscard]] PieceCost casts(PieceCost LayerCosts::*piece) {
        const PieceCost with = layer_costs(shard).*piece;
        workload.cluster.compute_capability = 80;
        const PieceCost without = layer_costs(shard).*piece;
        workload.cluster.compute_capability = 90;
        PieceCost difference;
        difference.forward = with.forward - without.forward;
        difference.backward = with.backward - without.backward;
        return difference;
    }
};

TEST_F(Quantisation, InputAndGradientAreReadOnceAndWrittenForBothProducts) {
    expect(quantise_linear(shard, LinearInput::plain, 1000, 200, 300), 4.0 * 1000 * 200, 4.0 * 1000 * 300);
    recipe(Fp8Recipe::delayed, 100);  // the same bytes serve both
    expect(quantise_linear(shard, LinearInput::plain, 1000, 200, 300), 3.0 * 1000 * 200, 3.0 * 1000 * 300);
    recipe(Fp8Recipe::mxfp8, 100);  // a scale for 32 elements either way
    const PieceCost blocks = quantise_linear(shard, LinearInput::plain, 1024, 256, 512);
    EXPECT_NEAR(blocks.forward, (2 + 2 + 2 / 32.0) * 1024 * 256 * kByte, kScale);
}

TEST_F(Quantisation, OtherPrecisionsAndOlderGpusCastNothing) {
    workload.cluster.compute_capability = 80;
    expect(quantise_linear(shard, LinearInput::plain, 1000, 200, 300), 0, 0);
    workload.cluster.compute_capability = 90;
    workload.training.precision = Precision::bf16;
    expect(quantise_linear(shard, LinearInput::plain, 1000, 200, 300), 0, 0);
    sequence_parallel();
    expect(quantise_column_parallel(shard, LinearInput::normed, 200, 300), 0, 0);
    expect(quantise_row_parallel(shard, LinearInput::plain, 200, 300), 0, 0);
    EXPECT_DOUBLE_EQ(gather_operand_seconds(shard, 1024), tp_gather_seconds(shard, 1024));
}

TEST_F(Quantisation, ANormWritesItsOutputInFp8UnderDelayedScaling) {
    expect(quantise_linear(shard, LinearInput::normed, 1000, 200, 300), 2.0 * 1000 * 200, 4.0 * 1000 * 300);
    recipe(Fp8Recipe::delayed, 100);
    expect(quantise_linear(shard, LinearInput::normed, 1000, 200, 300), 0, 3.0 * 1000 * 300);
}

TEST_F(Quantisation, AScaleOfTheTensorItselfReadsItOnceMoreUnlessItsProducerKnows) {
    recipe(Fp8Recipe::tensorwise, 90);
    expect(quantise_linear(shard, LinearInput::plain, 1000, 200, 300), 6.0 * 1000 * 200, 6.0 * 1000 * 300);
    expect(quantise_linear(shard, LinearInput::normed, 1000, 200, 300), 4.0 * 1000 * 200, 6.0 * 1000 * 300);
    expect(quantise_row_parallel(shard, LinearInput::activated, 200, 300), 4.0 * 4096 * 200, 6.0 * 4096 * 300);
    calibration.producers_find_amax = false;
    expect(quantise_linear(shard, LinearInput::normed, 1000, 200, 300), 6.0 * 1000 * 200, 6.0 * 1000 * 300);
    sequence_parallel();
    expect(quantise_column_parallel(shard, LinearInput::normed, 200, 300), 5.0 * 1024 * 200, 2.0 * 4096 * 200 + 6.0 * 4096 * 300);
}

TEST_F(Quantisation, Nvfp4HasItsLargestValueHalfBytesAndAScaleForSixteen) {
    workload.training.precision = Precision::nvfp4;
    workload.cluster.peak_flops[Precision::nvfp4] = 4e12;
    workload.cluster.compute_capability = 100;
    const double read_twice = 2 + 2 + 2 * (0.5 + 1 / 16.0);
    EXPECT_NEAR(quantise_linear(shard, LinearInput::normed, 1024, 256, 512).forward, read_twice * 1024 * 256 * kByte, kScale);
    calibration.nvfp4_casts = 2;
    EXPECT_NEAR(quantise_linear(shard, LinearInput::normed, 1024, 256, 512).backward, (read_twice + 2) * 1024 * 512 * kByte, kScale);
}

TEST_F(Quantisation, SequenceParallelRanksCastTheirOwnTokensAndTransposeAll) {
    sequence_parallel();
    expect(quantise_column_parallel(shard, LinearInput::normed, 200, 300), 0, 2.0 * 4096 * 200 + 4.0 * 4096 * 300);
    expect(quantise_column_parallel(shard, LinearInput::plain, 200, 300), 3.0 * 1024 * 200, 2.0 * 4096 * 200 + 4.0 * 4096 * 300);
    expect(quantise_row_parallel(shard, LinearInput::plain, 200, 300), 4.0 * 4096 * 200, 3.0 * 1024 * 300 + 2.0 * 4096 * 300);
    recipe(Fp8Recipe::delayed, 100);
    expect(quantise_row_parallel(shard, LinearInput::plain, 200, 300), 3.0 * 4096 * 200, 3.0 * 1024 * 300);
}

TEST_F(Quantisation, WithoutSequenceParallelismEveryRankCastsAll) {
    shard.tp = 4;
    expect(quantise_column_parallel(shard, LinearInput::plain, 200, 300), 4.0 * 4096 * 200, 4.0 * 4096 * 300);
    expect(quantise_row_parallel(shard, LinearInput::plain, 200, 300), 4.0 * 4096 * 200, 4.0 * 4096 * 300);
}

TEST_F(Quantisation, OperandsAreGatheredInFp8) {
    sequence_parallel();
    EXPECT_NEAR(gather_operand_seconds(shard, 1024), tp_gather_seconds(shard, 1024) / 2, 1e-7);
    const double in_fp8 = layer_costs(shard).dense.exposed_forward.tp;
    workload.cluster.compute_capability = 80;
    // In front of both regions; what is reduced behind them stays in 16 bits.
    EXPECT_NEAR(layer_costs(shard).dense.exposed_forward.tp - in_fp8, tp_gather_seconds(shard, 1024), 1e-7);
}

TEST_F(Quantisation, ADenseLayerCastsAroundItsFourLinearLayers) {
    // Inputs of qkv and fc1 come from norms, 1,024 wide; those of the projection and of fc2 are 1,024 and 4,096 wide.
    const double forward = 2 * 1024 + 4 * 1024 + 2 * 1024 + 4 * 4096;
    const double backward = 4 * (3 * 1024 + 1024 + 4096 + 1024);
    expect(casts(&LayerCosts::dense), 4096 * forward, 4096 * backward);
}

TEST_F(Quantisation, ExpertsCastEveryCopyAndSharedExpertsEveryToken) {
    workload.model = mixture(2);
    shard.ep = 4;
    const double copies = 2 * 4096;
    const auto experts = [](double fed) { return std::pair(fed * 4 * (1024 + 512), fed * 4 * (1024 + 1024)); };
    expect(casts(&LayerCosts::experts), experts(copies).first, experts(copies).second);
    workload.model.moe->shared_ffn = 512;
    expect(casts(&LayerCosts::experts), experts(copies + 4096).first, experts(copies + 4096).second);
}

TEST_F(Quantisation, LatentAttentionCastsDownAndUp) {
    workload.model.mla = MlaSpec{.q_lora_rank = 256, .kv_lora_rank = 128, .qk_nope_head_dim = 64, .qk_rope_head_dim = 32, .v_head_dim = 64};
    // Down from the same 1,024 twice, to 256 and 160; up from normed 256 and 128 to 16 heads; the projection from 1,024.
    const double forward = 4 * 1024 + 4 * 1024 + 2 * 256 + 2 * 128 + 4 * 1024;
    const double backward = 4 * (256 + 160 + 16 * 96 + 16 * 128 + 1024);
    expect(casts(&LayerCosts::attention), 4096 * forward, 4096 * backward);
}

}  // namespace
}  // namespace mgplan::simulator::quantisation_test
