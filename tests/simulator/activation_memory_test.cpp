// Activation bytes per layer against the closed forms of Korthikanti et al., "Reducing Activation Recomputation in Large
// Transformer Models", arXiv 2205.05198, section 4. What one layer keeps is the difference between two models that
// differ by one layer per stage, so that ends and scratch drop out.

#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::activation_memory_test {
namespace {

constexpr std::int64_t s = 512, b = 2, h = 1024, a = 16;
/// Mean and deviation of both norms in fp32, which the paper leaves out.
constexpr std::int64_t kNorms = 16 * s * b;

/// Activation bytes of one stage. The batch makes `microbatches` of b sequences for each data-parallel rank.
std::int64_t activations(const Workload& workload, const LayoutRequest& request, int stage) {
    return CostModel(workload, ideal_calibration()).stage_memory(planner::make_layout(request, workload), stage).breakdown.activations;
}

struct Case {
    LayoutRequest request;
    AttentionBackend attention = AttentionBackend::unfused;
    std::int64_t world = 8;

    Case() {
        request.micro_batch = b;
        request.engine = Engine::megatron;
    }

    /// Bytes that each further layer adds on a single stage.
    [[nodiscard]] std::int64_t per_layer() const {
        const auto bytes = [&](std::int64_t layers) {
            Workload workload = workload_of(gpt(layers), world, b * world);
            workload.training.attention = attention;
            return activations(workload, request, 0);
        };
        return bytes(3) - bytes(2);
    }
};

TEST(ActivationsPerLayer, WithoutParallelismAre34sbhAnd5aSquaredSB) {
    EXPECT_EQ(Case{}.per_layer(), 34 * s * b * h + 5 * a * s * s * b + kNorms);
}

TEST(ActivationsPerLayer, WithTensorParallelismKeepTenPartsWhole) {
    Case two;
    two.request.tp = 2;
    EXPECT_EQ(two.per_layer(), 10 * s * b * h + 24 * s * b * h / 2 + 5 * a * s * s * b / 2 + kNorms);
}

TEST(ActivationsPerLayer, WithSequenceParallelismAreDividedEntirely) {
    for (const std::int64_t t : {2, 4, 8}) {
        Case sharded;
        sharded.request.tp = t;
        sharded.request.sequence_parallel = true;
        EXPECT_EQ(sharded.per_layer(), (34 * s * b * h + 5 * a * s * s * b + kNorms) / t) << "tp = " << t;
    }
}

TEST(ActivationsPerLayer, WithoutTheCoreAre34sbh) {
    Case selective;
    selective.request.recompute = Recompute::selective;
    EXPECT_EQ(selective.per_layer(), 34 * s * b * h + kNorms);
}

TEST(ActivationsPerLayer, UnderFullRecomputeAreTheLayersInput) {
    Case full;
    full.request.recompute = Recompute::full;
    EXPECT_EQ(full.per_layer(), 2 * s * b * h);
    full.request.tp = 4;
    EXPECT_EQ(full.per_layer(), 2 * s * b * h) << "every rank keeps the whole input";
    full.request.sequence_parallel = true;
    EXPECT_EQ(full.per_layer(), 2 * s * b * h / 4);
}

TEST(ActivationsPerLayer, UnderBlockRecomputeAreWholeBeyondTheBlock) {
    Case block;
    block.request.recompute = Recompute::full;
    block.request.recompute_method = RecomputeMethod::block;
    block.request.recompute_num_layers = 1;
    EXPECT_EQ(block.per_layer(), 34 * s * b * h + 5 * a * s * s * b + kNorms);
    block.request.recompute_num_layers = 3;
    EXPECT_EQ(block.per_layer(), 2 * s * b * h);
}

TEST(ActivationsPerLayer, WithFlashAttentionKeepOneNumberPerQueryInsteadOfTheScores) {
    Case flash;
    flash.attention = AttentionBackend::flash;
    EXPECT_EQ(flash.per_layer(), 34 * s * b * h + 4 * a * s * b + kNorms);
}

TEST(ActivationsPerLayer, AreDividedOverContextParallelRanks) {
    Case split;
    split.attention = AttentionBackend::flash;
    split.request.cp = 4;
    EXPECT_EQ(split.per_layer(), (34 * s * b * h + 4 * a * s * b + kNorms) / 4);
}

TEST(ActivationsPerLayer, WithoutDropoutKeepNoMasks) {
    const auto bytes = [](std::int64_t layers) {
        Workload workload = workload_of(gpt(layers), 1, b);
        workload.model.attention_dropout = workload.model.hidden_dropout = 0;
        workload.training.attention = AttentionBackend::unfused;
        return activations(workload, Case{}.request, 0);
    };
    EXPECT_EQ(bytes(3) - bytes(2), 32 * s * b * h + 2 * a * s * s * b + kNorms);
}

TEST(ActivationsPerLayer, InFp32AreTwiceAsLargeButForMasksAndSums) {
    const auto bytes = [](std::int64_t layers) {
        Workload workload = workload_of(gpt(layers), 1, b);
        workload.training.precision = Precision::fp32;
        return activations(workload, Case{}.request, 0);
    };
    EXPECT_EQ(bytes(3) - bytes(2), (2 * 32 + 2) * s * b * h + 4 * a * s * b + kNorms);
}

TEST(ActivationsPerLayer, OfExpertsFollowTheRoutedTokens) {
    const auto per_layer = [](std::int64_t experts, std::int64_t top_k) {
        const auto of = [&](std::int64_t layers) {
            ModelSpec model = mixture(layers);
            model.moe->experts = experts;
            model.moe->top_k = top_k;
            return activations(workload_of(model, 1, b), Case{}.request, 0);
        };
        return of(3) - of(2);
    };
    // A routed row keeps its input, both halves of the gated projection, their product, its probability in fp32 at the router
    // and at the experts, its expert and its place among the sorted rows.
    EXPECT_EQ(per_layer(8, 3) - per_layer(8, 2), b * s * (2 * (h + 3 * 512) + 4 * 4));
    // Each expert adds an fp32 score, and with engine megatron a dense fp32 probability and a routing flag, per token.
    EXPECT_EQ(per_layer(9, 2) - per_layer(8, 2), b * s * (4 + 4 + 1));
}

TEST(ActivationsPerLayer, OfExpertsDoNotDependOnHowRanksShareThem) {
    const auto bytes = [](std::int64_t tp, std::int64_t ep, std::int64_t etp) {
        LayoutRequest request;
        request.tp = tp;
        request.sequence_parallel = true;
        request.ep = ep;
        request.etp = etp;
        const auto of = [&](std::int64_t layers) { return activations(workload_of(mixture(layers), 8, 8), request, 0); };
        return of(3) - of(2);
    };
    EXPECT_EQ(bytes(1, 8, 1), bytes(1, 4, 1));
    EXPECT_EQ(bytes(1, 8, 1), bytes(1, 1, 1));
    // With etp = tp a rank holds 1/tp of each expert for tp times as many tokens: inner tensors stay, rows do not.
    EXPECT_GT(bytes(2, 4, 2), bytes(2, 4, 1));
}

// Stages

class PipelineActivations : public testing::Test {
protected:
    LayoutRequest request;
    Workload workload = workload_of(gpt(8), 4, 8 * b);

    PipelineActivations() {
        request.micro_batch = b;
        request.pp = 4;
        request.engine = Engine::megatron;
        workload.training.attention = AttentionBackend::unfused;
    }
    /// Bytes that one more layer in every chunk adds on a stage.
    std::int64_t per_further_layer(int stage) {
        const std::int64_t chunks = request.pp * request.vpp;
        workload.model = gpt(2 * chunks);
        const std::int64_t two = activations(workload, request, stage);
        workload.model = gpt(3 * chunks);
        return activations(workload, request, stage) - two;
    }
    static constexpr std::int64_t kLayer = 34 * s * b * h + 5 * a * s * s * b + kNorms;
};

TEST_F(PipelineActivations, In1F1BAreAliveOncePerStageBehind) {
    for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(per_further_layer(stage), (4 - stage) * kLayer) << "stage " << stage;
}

TEST_F(PipelineActivations, AreNeverAliveMoreOftenThanThereAreMicrobatches) {
    workload.batch.global_batch = 2 * b;
    EXPECT_EQ(per_further_layer(0), 2 * kLayer);
    EXPECT_EQ(per_further_layer(3), 1 * kLayer);
}

TEST_F(PipelineActivations, InterleavedAreAliveForTheWarmUpAndOneMore) {
    // Warm-up 2·(pp - rank - 1) + (vpp - 1)·group forwards, then one before the first backward (Megatron-core schedules.py).
    request.vpp = 2;
    for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(per_further_layer(stage), (2 * (3 - stage) + 4 + 1) * kLayer) << "stage " << stage;
}

TEST(OffloadedLayers, AreAllAwayWhereOutputLayerAndLossAreTheFullest) {
    // Transformer Engine, cpu_offload_v1.py: the last of them leaves with the last layer's forward and comes back beside its backward.
    const auto spared = [](std::int64_t vocab, std::int64_t layers) {
        const auto bytes = [&](std::int64_t offloaded) {
            Workload workload = workload_of(gpt(6), 8, b * 8);
            workload.training.attention = Case{}.attention;
            workload.model.vocab = vocab;
            workload.training.megatron.offloaded_layers = offloaded;
            return activations(workload, Case{}.request, 0);
        };
        return bytes(0) - bytes(layers);
    };
    const std::int64_t of_layer = Case{}.per_layer();
    EXPECT_EQ(spared(1 << 19, 3), 3 * of_layer);
    EXPECT_EQ(spared(128, 3), 2 * of_layer) << "the last one is there beside the last layer";
    EXPECT_EQ(spared(128, 1), 0);
    EXPECT_EQ(spared(1 << 19, 0), 0);
}

}  // namespace
}  // namespace mgplan::simulator::activation_memory_test
