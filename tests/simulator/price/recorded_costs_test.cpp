#include "simulator/price/recorded_costs.hpp"

#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "plan/layout/rank_groups.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/price/recorded_piece.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::recorded_costs_test {
namespace {

constexpr double kByte = 1e-12;  ///< seconds
constexpr double kSmall = 1e-8;  ///< above a value for each row, below whole rows

/// One of `ep` ranks with 512 tokens, each copied to two of eight experts.
class MixturePrice : public RecordedPiece {
protected:
    MixturePrice() : RecordedPiece(mixture(2), 512) {}

    PieceCost on(std::int64_t ep) {
        sizes.ep = ep;
        return cost(Piece::mixture);
    }
    /// Forward seconds for which a slow permutation is to blame.
    double permuting(std::int64_t ep, TokenDispatcher dispatcher) {
        workload.model.moe->dispatcher = dispatcher;
        calibration.permutation_share = 1;
        const double fast = on(ep).forward;
        calibration.permutation_share = 0.5;
        return on(ep).forward - fast;
    }
};

constexpr double kCopies = 2 * 512 * 1024 * 2 * 2 * kByte;  ///< in which all copies are read and written once

TEST_F(MixturePrice, WhatArrivesForASingleExpertIsInOrder) {
    // In front of the exchange, sorted behind it and back; in the end copies are read and half as many rows written.
    EXPECT_NEAR(permuting(4, TokenDispatcher::all_to_all), 3.75 * kCopies, kSmall);
    EXPECT_NEAR(permuting(8, TokenDispatcher::all_to_all), 1.75 * kCopies, kSmall);
}

TEST_F(MixturePrice, ATokenThatArrivesOnceIsCopiedForItsExpert) {
    // Two of eight experts on eight ranks: a token reaches 8·(1 - (7/8)²) = 1.875 of them. What arrived is read, all copies are written,
    // and the other way round on the way back.
    EXPECT_NEAR(permuting(8, TokenDispatcher::deep_ep), (1.875 / 2 + 1) * kCopies, 1e-12);
    EXPECT_NEAR(permuting(8, TokenDispatcher::hybrid_ep), (1.875 / 2 + 1) * kCopies, 1e-12);
    workload.training.megatron.permute_in_hybrid_ep = true;
    EXPECT_NEAR(permuting(8, TokenDispatcher::hybrid_ep), 0, 1e-15);
    EXPECT_NEAR(permuting(8, TokenDispatcher::deep_ep), (1.875 / 2 + 1) * kCopies, 1e-12) << "HybridEP's own";
}

TEST_F(MixturePrice, WithoutAFusedPermutationPyTorchAddsCopiesValueByValue) {
    const auto seconds = [&](bool fused, TokenDispatcher dispatcher) {
        workload.training.megatron.moe_permute_fusion = fused;
        workload.model.moe->dispatcher = dispatcher;
        const PieceCost cost = on(8);
        return std::pair(cost.forward, cost.backward);
    };
    constexpr double kValues = 2 * 512 * 1024, kRate = 1e9;
    // The fused kernel reads all copies and writes a row for each token; DeepEP's writes 1.875 rows.
    const auto more = [](double rows) { return kValues / kRate - kCopies * (1 + rows / 2) / 2; };
    for (const auto& [dispatcher, rows] : {std::pair(TokenDispatcher::all_to_all, 1.0), std::pair(TokenDispatcher::deep_ep, 1.875)}) {
        calibration.atomic_adds = kRate;
        const auto [ahead, back] = seconds(false, dispatcher);
        const auto [fused_ahead, fused_back] = seconds(true, dispatcher);
        EXPECT_NEAR(ahead - fused_ahead, more(rows), kSmall);
        EXPECT_NEAR(back - fused_back, more(rows), kSmall);
        calibration.atomic_adds = 0;
        EXPECT_EQ(seconds(false, dispatcher), seconds(true, dispatcher)) << "the rate is not known";
    }
    calibration.atomic_adds = kRate;
    EXPECT_EQ(seconds(false, TokenDispatcher::hybrid_ep), seconds(true, TokenDispatcher::hybrid_ep)) << "its own kernels permute";
}

TEST_F(MixturePrice, FusedOperationsComputeTheActivationBehindTheProducts) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    const PieceCost apart = on(4);
    workload.training.megatron.op_fuser = true;
    const PieceCost fused = on(4);
    // 1,024 rows of 1,024 values in front of the activation and 512 behind, two bytes each; the 512 are also read again and written twice
    // in fp8, with a scale for each 32.
    const double rows = 1024;
    EXPECT_NEAR(apart.forward - fused.forward, rows * (2 * 1536 + 512 * (4 + 2 / 32.0)) * kByte, kSmall);
    // Its gradients: 1,024 twice and 512 once, and the quantisation of 1,024.
    EXPECT_NEAR(apart.backward - fused.backward, rows * (2 * (2 * 1024 + 512) + 1024 * (4 + 2 / 32.0)) * kByte, 2 * kSmall);
    workload.cluster.compute_capability = 90;
    const double on_hopper = on(4).forward;
    workload.training.megatron.op_fuser = false;
    EXPECT_DOUBLE_EQ(on(4).forward, on_hopper);
}

TEST_F(MixturePrice, AHiddenExchangeTakesTheMultiprocessorsOfItsKernels) {
    calibration.multiprocessors = 100;
    calibration.expert_overlap_cost = 0.5;
    calibration.memory_efficiency = 1e-3;  // router and experts take longer than what DeepEP moves
    paths.ep = {.ranks = 8, .ranks_per_domain = 8, .inside = 1e15, .network = 1e15};
    const auto shown = [&](TokenDispatcher dispatcher) {
        workload.model.moe->dispatcher = dispatcher;
        workload.training.overlap_moe = false;
        const double whole = on(8).exposed_forward.ep;
        workload.training.overlap_moe = true;
        return on(8).exposed_forward.ep / whole;
    };
    EXPECT_NEAR(shown(TokenDispatcher::all_to_all), 0.5, 1e-9);
    EXPECT_NEAR(shown(TokenDispatcher::deep_ep), 0.20, 1e-9);
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.24, 1e-9);
    workload.training.megatron.dispatcher_sms = 32;
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.32, 1e-9);
    EXPECT_NEAR(shown(TokenDispatcher::deep_ep), 0.32, 1e-9);
    paths.ep.ranks_per_domain = 4;
    EXPECT_NEAR(shown(TokenDispatcher::hybrid_ep), 0.5, 1e-9) << "across domains";
}

TEST(Exchange, OfTokensSentOnceDrivesOnePlaneOfAnAdapter) {
    Calibration calibration = ideal_calibration();
    calibration.network_efficiency = 0.8;
    PieceStep start;
    start.kind = StepKind::start;
    start.group = LayerGroup::ep;
    start.collective = model::CollectiveKind::all_to_all;
    start.sent = start.received = 1 << 30;
    const auto seconds = [&](std::int64_t copies, double network) {
        LayoutPaths paths;
        paths.ep = {.ranks = 16, .ranks_per_domain = 8, .inside = 1e15, .network = 0.8 * network};
        start.copies = copies;
        return collective_seconds(start, paths, calibration);
    };
    EXPECT_NEAR(seconds(0, 50e9) / seconds(0, 100e9), 2, 1e-6) << "NCCL drives both planes";
    EXPECT_NEAR(seconds(8, 50e9) / seconds(8, 100e9), 1, 1e-9);
    EXPECT_NEAR(seconds(8, 25e9) / seconds(8, 50e9), 2, 1e-6);
}

TEST(Exchange, ByDeepEPMovesWhatItsMultiprocessorsMove) {
    const Calibration calibration = ideal_calibration();
    PieceStep start;
    start.kind = StepKind::start;
    start.group = LayerGroup::ep;
    start.collective = model::CollectiveKind::all_to_all;
    start.copies = 8;
    start.multiprocessors = 24;
    // 4,096 tokens of 7,168 values to eight experts: each goes to 8 (1 - (7/8)^8) = 5.25 of eight ranks, 6.45 of sixteen.
    const double token = 7168 * 2, tokens = 4096;
    start.sent = start.received = static_cast<std::int64_t>(8 * tokens * token);
    const auto seconds = [&](std::int64_t ranks, std::int64_t domain = 8) {
        LayoutPaths paths;
        paths.ep = {.ranks = ranks, .ranks_per_domain = domain, .inside = 1e15, .network = 1e15};
        return collective_seconds(start, paths, calibration);
    };
    EXPECT_NEAR(tokens * token * 5.2511 / seconds(8), 457e9, 1e9) << "the mean of 494 and 420 GB/s";
    EXPECT_NEAR(tokens * token * 6.4531 / seconds(16), 144e9, 1e9);
    EXPECT_NEAR(tokens * token * 7.1782 / seconds(32, 72), 257.6e9, 1e9) << "one dispatch at 400 and one combine at 190 GB/s";
    const double with_24 = seconds(8);
    start.multiprocessors = 12;
    EXPECT_NEAR(seconds(8) / with_24, 2, 1e-9);
    start.multiprocessors = -1;
    EXPECT_LT(seconds(8), with_24 / 100) << "HybridEP's, whose links alone count";
}

TEST(OverlapCost, IsTheShareOfTheMultiprocessorsThatACollectiveHolds) {
    Calibration calibration;
    calibration.multiprocessors = 128;
    calibration.overlap_cost = 0.25;
    PieceStep start;
    EXPECT_EQ(overlap_cost(start, calibration), 0.25) << "not known";
    start.multiprocessors = 16;
    EXPECT_EQ(overlap_cost(start, calibration), 0.125);
    start.multiprocessors = 1000;
    EXPECT_EQ(overlap_cost(start, calibration), 1);
}

TEST_F(MixturePrice, AScheduleThatHidesExchangesHasNodes) {
    workload.training.overlap_moe = false;
    const PieceCost alone = on(8);
    workload.training.overlap_moe = true;
    EXPECT_EQ(on(8).kernels_forward - alone.kernels_forward, 4);
    EXPECT_EQ(on(8).kernels_backward - alone.kernels_backward, 4);
    workload.training.megatron.delay_wgrad = true;
    EXPECT_EQ(on(8).kernels_backward - alone.kernels_backward, 4 + 2);
}

TEST_F(MixturePrice, BiasesOfExpertsAreAddedInFp32) {
    const PieceCost without = on(4);
    workload.model.mlp_bias = true;
    const PieceCost with = on(4);
    const double elements = 1024 * 1024;
    EXPECT_NEAR(with.forward - without.forward, 28 * elements * kByte, 1e-12);
    EXPECT_NEAR(with.backward - without.backward, (40 + 2) * elements * kByte, 1e-12) << "1,024 values behind the first product too";
    EXPECT_GT(with.kernels_backward, without.kernels_backward);
}

TEST_F(MixturePrice, AClampedProductOfAGatedGeluIsCopied) {
    workload.model.activation = Activation::gelu;
    const PieceCost without = on(4);
    workload.training.megatron.activation_clamp = 7;
    const PieceCost with = on(4);
    // 1,024 rows, of 512 values behind the activation: each half clamped and both joined; their gradients masked and joined.
    const double activation = 1024 * 512 * 2;
    EXPECT_NEAR(with.forward - without.forward, 8 * activation * kByte, 1e-12);
    EXPECT_NEAR(with.backward - without.backward, 10 * activation * kByte, 1e-12);
    EXPECT_GT(with.kernels_forward, without.kernels_forward);
    workload.model.activation = Activation::silu;
    const double fused = on(4).forward;
    workload.training.megatron.activation_clamp = 0;
    EXPECT_DOUBLE_EQ(fused, on(4).forward) << "SwiGLU's kernel clamps itself";
}

TEST_F(MixturePrice, EachKernelOfManyStartsOnTheDevice) {
    workload.model.mlp_bias = true;
    const double at_once = on(4).forward;
    calibration.kernel_seconds = 1e-3;
    const double biased = on(4).forward;
    workload.model.mlp_bias = false;
    const double plain = on(4).forward;
    calibration.kernel_seconds = 0;
    // Two experts: a kernel for the stream and four more for each of them.
    EXPECT_NEAR((biased - at_once) - (plain - on(4).forward), (1 + 4 * 2) * 1e-3, 1e-9);
}

TEST_F(MixturePrice, RowsOfQuantisedExpertsArePaddedBehindTheAllToAll) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    sizes.ep = 4;
    const auto moved = [&](bool backward) {
        const PieceTrace recorded = trace(Piece::mixture);
        double bytes = 0;
        for (const PieceStep& step : recorded.range(Piece::mixture, backward).steps) {
            if (step.op.name == "pad_rows" || step.op.name == "unpad_rows") bytes += static_cast<double>(step.op.bytes_read);
        }
        return bytes;
    };
    // 1,024 rows, read and written in front of the first product and behind the second.
    EXPECT_EQ(moved(false), 2 * 2 * 1024 * 1024 * 2);
    EXPECT_EQ(moved(true), 2 * 2 * 1024 * 1024 * 2);
    workload.model.moe->pad_to_capacity = true;
    EXPECT_EQ(moved(false), 0);
    workload.model.moe->pad_to_capacity = false;
    workload.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    EXPECT_EQ(moved(false), 0) << "padded as they are permuted";
    workload.model.moe->dispatcher = TokenDispatcher::all_to_all;
    workload.training.precision = Precision::bf16;
    EXPECT_EQ(moved(false), 0);
}

TEST_F(MixturePrice, ExpertsScaledByOneTensorEachHaveMoreLaunches) {
    workload.model.moe->experts = 160;
    workload.cluster.compute_capability = 100;
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    const PieceCost by_block = on(4);
    workload.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    const PieceCost by_tensor = on(4);
    EXPECT_EQ(by_tensor.kernels_forward - by_block.kernels_forward, 2 * 8 * 40 / kLaunchesOfAKernel);
    EXPECT_EQ(by_tensor.kernels_backward - by_block.kernels_backward, 2 * 8 * 40 / kLaunchesOfAKernel);
}

TEST_F(MixturePrice, EachQuantisedExpertHasLaunchesOfItsOwn) {
    workload.model.moe->dispatcher = TokenDispatcher::hybrid_ep;  // pads rows itself
    workload.model.moe->experts = 160;
    workload.cluster.compute_capability = 100;
    const PieceCost in_16 = on(4);
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    const PieceCost in_8 = on(4);
    EXPECT_EQ(in_8.kernels_forward - in_16.kernels_forward, 8 * 40 / kLaunchesOfAKernel);
    EXPECT_EQ(in_8.kernels_backward - in_16.kernels_backward, 14 * 40 / kLaunchesOfAKernel);
    workload.training.megatron.op_fuser = true;
    EXPECT_LT(on(4).kernels_forward, in_16.kernels_forward) << "one kernel for all of them, with the activation";
}

/// 4,096 tokens, a vocabulary of 1,024 rows of 1,024.
class DensePrice : public RecordedPiece {
protected:
    DensePrice() : RecordedPiece(gpt(1), kTokens) {
        workload.model.hidden_dropout = 0;
        workload.model.max_positions = kTokens;
    }
    static constexpr std::int64_t kTokens = 4096;
    static constexpr double kTable = 1024.0 * 1024, kLogits = static_cast<double>(kTokens) * 1024;
};

TEST_F(DensePrice, TheEmbeddingsGradientIsAWholeTable) {
    // Added to gradients of 4 bytes rather than of 2, read and written.
    const double in_32 = cost(Piece::embedding).backward;
    workload.training.grad_dtype = Dtype::bf16;
    const double in_16 = cost(Piece::embedding).backward;
    EXPECT_NEAR(in_32 - in_16, kTable * 4 * kByte, 1e-12);
    sizes.tp = 2;
    EXPECT_NEAR(in_16 - cost(Piece::embedding).backward, kTable * 4 * kByte, 1e-12) << "half of the rows";
}

TEST_F(DensePrice, OfASeparateLossOnlyTheForwardIsSlowerThanAPlainStream) {
    workload.training.fused_cross_entropy = false;
    const PieceCost plain = cost(Piece::loss);
    calibration.cross_entropy_share = 0.5;
    EXPECT_NEAR(cost(Piece::loss).forward - plain.forward, kLogits * 30 * kByte, 1e-12);
    EXPECT_DOUBLE_EQ(cost(Piece::loss).backward, plain.backward);
    workload.training.fused_cross_entropy = true;
    const PieceCost slow = cost(Piece::loss);
    calibration.cross_entropy_share = 1;
    EXPECT_NEAR(slow.forward - cost(Piece::loss).forward, kLogits * 6 * kByte, 1e-12);
    EXPECT_NEAR(slow.backward - cost(Piece::loss).backward, kLogits * 6 * kByte, 1e-12);
}

TEST_F(DensePrice, TheOutputProjectionIsQuantisedUnderMxfp8WhereAsked) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    const PieceCost in_16 = cost(Piece::loss);
    workload.training.megatron.fp8_output_projection = true;
    const PieceCost in_8 = cost(Piece::loss);
    // Twice the rate, and 4,096 tokens of 1,024 values that are read and written twice with their scales.
    const double product = 2 * kLogits * 1024 * 1e-12, casts = kTokens * 1024 * (4 + 2 / 32.0) * kByte;
    EXPECT_NEAR(in_16.forward - in_8.forward, product / 2 - casts, 1e-12);
    EXPECT_NEAR(in_16.backward - in_8.backward, 2 * product / 2 - casts, 1e-12);
    workload.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_NEAR(cost(Piece::loss).forward, in_16.forward, 1e-15);
}

TEST_F(DensePrice, AttentionOverFp8CopiesHasItsRateAndItsCasts) {
    workload.training.precision = Precision::fp8;
    calibration.attention_fp8_forward = 2;
    calibration.attention_fp8_backward = 4;
    const PieceCost in_16 = cost(Piece::attention);
    workload.training.megatron.fp8_attention = true;
    const PieceCost in_8 = cost(Piece::attention);
    const double flops = static_cast<double>(kTokens) * kTokens * 2 * 1024;  // QK^T and PV, half of the pairs visible
    EXPECT_NEAR(in_16.forward - in_8.forward, flops * 1e-12 / 2 - 3 * 3 * kLogits * kByte, 1e-9);
    EXPECT_NEAR(in_16.backward - in_8.backward, 2.5 * flops * 1e-12 * 3 / 4 - 3 * kLogits * kByte, 1e-9);
}

TEST_F(DensePrice, AScaleOfTheTensorItselfIsFoundByItsProducerOrByAPass) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    const PieceCost found = cost(Piece::dense);
    calibration.producers_find_amax = false;
    // Norm and activation: 1,024 and 4,096 values a token of two bytes.
    EXPECT_NEAR(cost(Piece::dense).forward - found.forward, 2.0 * kTokens * (1024 + 4096) * kByte, 1e-12);
    EXPECT_DOUBLE_EQ(cost(Piece::dense).backward, found.backward) << "gradients have no such producer";
}

TEST_F(DensePrice, Nvfp4IsCastByOneKernelOrByTwo) {
    workload.training.precision = Precision::nvfp4;
    workload.cluster.peak_flops[Precision::nvfp4] = 4e12;
    calibration.nvfp4_gemm_efficiency = 1;
    workload.cluster.compute_capability = 100;
    const PieceCost once = cost(Piece::dense);
    calibration.nvfp4_casts = 2;
    EXPECT_NEAR(cost(Piece::dense).forward - once.forward, 2.0 * kTokens * (1024 + 4096) * kByte, 1e-12);
    EXPECT_NEAR(cost(Piece::dense).backward - once.backward, 2.0 * kTokens * (1024 + 4096) * kByte, 1e-12);
}

/// A sequence over eight ranks, whose cost is read from two and from four of them.
/// An MLP's backward over eight tp ranks of mgplan's own layers.
class TensorParallelPrice : public RecordedPiece {
protected:
    TensorParallelPrice() : RecordedPiece(gpt(2), 512) {
        sizes.engine = Engine::mgplan;
        sizes.tp = 8;
        sizes.sequence_parallel = true;
    }
    /// Over links of so many bytes/s, of which a collective moves 7/8 of the rows.
    PieceCost over(double bandwidth) {
        paths.tp = {.ranks = 8, .ranks_per_domain = 8, .inside = bandwidth, .network = bandwidth};
        return cost(Piece::dense);
    }
    /// Seconds that a divided backward exposes in addition, over the links of the last over().
    [[nodiscard]] double divided() const { return division(Piece::dense); }
    static constexpr double kMoved = 512 * 1024 * 2 * 7 / 8.0;         ///< bytes of a collective
    static constexpr double kProduct = 2 * 512.0 * 1024 * 512 / 1e12;  ///< seconds of a product
};

TEST_F(TensorParallelPrice, ProductsHideTheSecondGatherAndTheReduction) {
    const double quick = kMoved / (kProduct / 2), slow = kMoved / (kProduct * 3);
    // The gather of the output's gradient has nothing beside it.
    const PieceCost hidden = over(quick);
    EXPECT_NEAR(hidden.exposed_backward.tp, kProduct / 2, kSmall);
    EXPECT_NEAR(divided(), 2 * kProduct / 2, kSmall) << "where nothing is beside them";
    const PieceCost sticks_out = over(slow);
    EXPECT_NEAR(sticks_out.exposed_backward.tp, (3 + 2 + 2) * kProduct, kSmall);
    EXPECT_NEAR(divided(), 2 * kProduct, 2 * kSmall);
    EXPECT_EQ(sticks_out.backward, hidden.backward);
    calibration.overlap_cost = 0.25;
    EXPECT_NEAR(over(quick).exposed_backward.tp, (0.5 + 2 * 0.125) * kProduct, kSmall) << "what they take from the products";
    calibration.overlap_cost = 1;
    EXPECT_NEAR(divided(), 0, kSmall) << "as on a CPU, whose cores do both";
    sizes.sequence_parallel = false;
    calibration.overlap_cost = 0;
    EXPECT_NEAR(over(quick).exposed_backward.tp, 0, kSmall) << "an all-reduce, as long as the product beside it";
    EXPECT_NEAR(divided(), kProduct, kSmall);
}

TEST(RecordedCosts, ARingOfTwoAndOneOfFourTellWhatOneOfEightCosts) {
    for (const auto& [engine, exchange] :
         {std::pair{Engine::megatron, CpCommType::p2p}, std::pair{Engine::megatron, CpCommType::all_gather},
          std::pair{Engine::mgplan, CpCommType::p2p}, std::pair{Engine::mgplan, CpCommType::all_gather}}) {
        ModelSpec model = mixture(2);
        model.moe.reset();
        model.moe_layers.clear();
        Workload workload = workload_of(model, 8, 8, 8192);
        LayoutRequest request;
        request.engine = engine;
        request.cp = 8;
        request.cp_comm_type = exchange;
        workload.model.max_positions = 8192;
        CostModel costs(workload, ideal_calibration());
        const Layout layout = planner::make_layout(request, workload);
        const PieceCost& told = costs.costs(layout).layers.front().cost;
        PieceSizes sizes;
        static_cast<ShardKey&>(sizes) = shard_key(layout);
        sizes.sequence = 8192;
        sizes.keep_steps = sizes.whole_ring = true;
        sizes.traits.kind = model::DeviceKind::cuda;
        sizes.traits.fused_attention = true;
        PieceTrace trace = trace_dense_pieces(workload.model, sizes);
        if (engine == Engine::megatron)
            apply_megatron_policies(trace, {workload.model, traced_layer(workload.model), workload.training, sizes});
        double flops = 0;
        int kernels = 0;
        PieceSteps forward_steps, backward_steps;
        for (const Piece piece : {Piece::attention, Piece::dense}) {
            for (const PieceStep& step : trace.range(piece, false).steps) forward_steps.push_back(step);
            for (const PieceStep& step : trace.range(piece, true).steps) backward_steps.push_back(step);
        }
        for (const PieceStep& step : forward_steps) {
            flops += model_flops_of(step);
            kernels += step_kernels(step, engine);
        }
        EXPECT_NEAR(told.forward_flops, flops, 1e-9 * flops);
        EXPECT_EQ(told.kernels_forward, kernels);
        const Calibration calibration = ideal_calibration();
        const KernelTimes times(workload.cluster, calibration, workload.training.precision);
        const OpRates rates{&times, &times, &calibration};
        double forward = 0, backward = 0, gathers = 0;
        LayoutPaths paths;
        for (const GridAxis& axis : dense_grid(layout.sizes)) {
            if (axis.axis == Axis::cp) paths.cp = group_path(std::span(&axis, 1), workload.cluster, calibration);
        }
        for (const PieceStep& step : forward_steps) {
            if (step.kind == StepKind::op) forward += step_seconds(step, rates);
            if (step.kind == StepKind::start) gathers += collective_seconds(step, paths, calibration);
        }
        for (const PieceStep& step : backward_steps) {
            if (step.kind == StepKind::op) backward += step_seconds(step, rates);
        }
        EXPECT_NEAR(told.forward, forward, 1e-9 * forward) << to_string(exchange);
        EXPECT_NEAR(told.backward, backward, 1e-9 * backward) << to_string(exchange);
        if (exchange == CpCommType::all_gather) {
            EXPECT_GT(gathers, 0);
            EXPECT_NEAR(told.exposed_forward.cp, gathers, 1e-9 * gathers) << to_string(engine);
        }
    }
}

}  // namespace
}  // namespace mgplan::simulator::recorded_costs_test
