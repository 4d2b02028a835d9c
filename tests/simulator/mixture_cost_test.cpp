#include <gtest/gtest.h>

#include "simulator/layers/mlp.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::mixture_cost_test {
namespace {

/// One of `ep` ranks with 512 tokens, each copied to two of eight experts; only moving rows of tokens takes time.
class MixtureCost : public testing::Test {
protected:
    Workload workload = workload_of(mixture(2), 8, 8);
    Calibration calibration = ideal_calibration();
    LayoutPaths paths;

    /// On an ep rank under Megatron-LM.
    [[nodiscard]] PieceCost cost(std::int64_t ep) const {
        const KernelTimes kernels(workload.cluster, calibration, workload.training.precision);
        Shard shard;
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.kernels = shard.storage_kernels = &kernels;
        shard.paths = &paths;
        shard.ep = ep;
        shard.tokens = shard.tokens_outside = 512;
        shard.engine = Engine::megatron;
        return mixture_cost(shard);
    }

    /// Forward seconds for which a slow permutation is to blame.
    double permuting(std::int64_t ep, TokenDispatcher dispatcher) {
        workload.model.moe->dispatcher = dispatcher;
        calibration.permutation_share = 1;
        const double fast = forward(ep);
        calibration.permutation_share = 0.5;
        return forward(ep) - fast;
    }

private:
    [[nodiscard]] double forward(std::int64_t ep) const { return cost(ep).forward; }
};

constexpr double kCopies = 2 * 512 * 1024 * 2 * 2 / 1e12;  ///< seconds in which all copies are read and written once

TEST_F(MixtureCost, WhatArrivesForASingleExpertIsInOrder) {
    EXPECT_NEAR(permuting(4, TokenDispatcher::all_to_all), 4 * kCopies, 1e-12) << "before and behind the exchange, there and back";
    EXPECT_NEAR(permuting(8, TokenDispatcher::all_to_all), 2 * kCopies, 1e-12);
}

TEST_F(MixtureCost, ATokenThatArrivesOnceIsCopiedForItsExpert) {
    // Two of eight experts on eight ranks: a token reaches 8·(1 - (7/8)²) = 1.875 of them. What arrived is read, all copies are written,
    // and the other way round on the way back.
    EXPECT_NEAR(permuting(8, TokenDispatcher::deep_ep), (1.875 / 2 + 1) * kCopies, 1e-12);
    EXPECT_NEAR(permuting(8, TokenDispatcher::hybrid_ep), (1.875 / 2 + 1) * kCopies, 1e-12);
    workload.training.megatron.permute_in_hybrid_ep = true;
    EXPECT_NEAR(permuting(8, TokenDispatcher::hybrid_ep), 0, 1e-15);
    EXPECT_NEAR(permuting(8, TokenDispatcher::deep_ep), (1.875 / 2 + 1) * kCopies, 1e-12) << "HybridEP's own";
}

TEST_F(MixtureCost, FusedOperationsComputeTheActivationBehindTheProducts) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    const PieceCost apart = cost(4);
    workload.training.megatron.op_fuser = true;
    const PieceCost fused = cost(4);
    // 1,024 rows of 1,024 values in front of the activation and 512 behind, two bytes each; the 512 are also read again and written twice
    // in fp8, with a scale for each 32.
    const double rows = 1024, byte = 1e-12;
    EXPECT_NEAR(apart.forward - fused.forward, rows * (2 * 1536 + 512 * (4 + 2 / 32.0)) * byte, 1e-15);
    // Its gradients: 1,024 twice and 512 once, and the quantisation of 1,024.
    EXPECT_NEAR(apart.backward - fused.backward, rows * (2 * (2 * 1024 + 512) + 1024 * (4 + 2 / 32.0)) * byte, 1e-15);
    workload.cluster.compute_capability = 90;
    const double on_hopper = cost(4).forward;
    workload.training.megatron.op_fuser = false;
    EXPECT_DOUBLE_EQ(cost(4).forward, on_hopper);
}

TEST_F(MixtureCost, AHiddenExchangeTakesTheMultiprocessorsOfItsKernels) {
    workload.training.overlap_moe = true;
    calibration.multiprocessors = 100;
    calibration.expert_overlap_cost = 0.5;
    paths.ep = {.ranks = 8, .ranks_per_domain = 8, .inside = 1e15, .network = 1e15};
    const auto shown = [&](TokenDispatcher dispatcher) {
        workload.model.moe->dispatcher = dispatcher;
        workload.training.overlap_moe = false;
        const double whole = cost(8).exposed_forward.ep;
        workload.training.overlap_moe = true;
        return cost(8).exposed_forward.ep / whole;
    };
    EXPECT_NEAR(shown(TokenDispatcher::all_to_all), 0.5, 1e-12);
    EXPECT_NEAR(shown(TokenDispatcher::deep_ep), 0.20, 1e-12);
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.24, 1e-12);
    workload.training.megatron.dispatcher_sms = 32;
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.32, 1e-12);
    EXPECT_NEAR(shown(TokenDispatcher::deep_ep), 0.32, 1e-12);
    paths.ep.ranks_per_domain = 4;
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.5, 1e-12) << "across domains";
}

TEST_F(MixtureCost, BiasesOfExpertsAreAddedInFp32) {
    const PieceCost without = cost(4);
    workload.model.mlp_bias = true;
    const PieceCost with = cost(4);
    const double elements = 1024 * 1024, byte = 1e-12;
    EXPECT_NEAR(with.forward - without.forward, 28 * elements * byte, 1e-15);
    EXPECT_NEAR(with.backward - without.backward, (40 + 2) * elements * byte, 1e-15) << "1,024 values behind the first product too";
    EXPECT_GT(with.kernels_backward, without.kernels_backward);
}

TEST_F(MixtureCost, EachQuantisedExpertHasLaunchesOfItsOwn) {
    workload.model.moe->experts = 160;
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    const PieceCost grouped = cost(4), few = cost(160);
    EXPECT_EQ(grouped.kernels_forward - few.kernels_forward, 8 * 40 / 20 - 1);
    EXPECT_EQ(grouped.kernels_backward - few.kernels_backward, 14 * 40 / 20 - 1);
    workload.training.megatron.op_fuser = true;
    EXPECT_EQ(cost(4).kernels_forward, cost(160).kernels_forward) << "one kernel for all of them";
}

}  // namespace
}  // namespace mgplan::simulator::mixture_cost_test
