// What engine megatron computes and sends otherwise, policy by policy: steps before and behind apply_megatron_policies().

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::time_policies_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using M = RecomputeModule;

class TimePolicies : public testing::Test {
protected:
    TimePolicies() {
        model.hidden_dropout = model.attention_dropout = 0;
        model.normalization = Normalization::rms_norm;
        model.position = PositionEmbedding::rope;
        model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
        sizes.sequence = kTokens;
        sizes.keep_steps = true;
        sizes.engine = Engine::megatron;
        sizes.traits.kind = model::DeviceKind::cuda;
    }

    [[nodiscard]] PieceSteps steps(Piece piece, bool backward) const {
        PieceSizes switched = sizes;
        switched.switches = layer_switches(model, training);
        PieceTrace trace = piece == Piece::mixture ? trace_mixture(model, sizes) : trace_dense_pieces(model, sizes);
        apply_megatron_policies(trace, {model, traced_layer(model, piece == Piece::mixture), training, switched});
        return trace.range(piece, backward).steps;
    }
    /// Ops by name, "+=" for products into a gradient, collectives by kind, "wait" with its share.
    [[nodiscard]] std::vector<std::string> texts(Piece piece, bool backward) const {
        std::vector<std::string> all;
        for (const PieceStep& step : steps(piece, backward)) {
            if (step.kind == StepKind::start)
                all.emplace_back(to_string(step.collective));
            else if (step.kind == StepKind::wait)
                all.emplace_back(step.share < 1 ? "wait for a chunk" : "wait");
            else
                all.emplace_back(step.op.product.accumulate ? "+=" : std::string(step.op.name));
        }
        return all;
    }
    [[nodiscard]] std::int64_t bytes(Piece piece, bool backward, std::string_view op) const {
        std::int64_t sum = 0;
        for (const PieceStep& step : steps(piece, backward))
            sum += step.kind == StepKind::op && step.op.name == op ? step.op.bytes_read + step.op.bytes_written : 0;
        return sum;
    }
    [[nodiscard]] std::int64_t count(Piece piece, bool backward, std::string_view text) const {
        const auto all = texts(piece, backward);
        return std::count(all.begin(), all.end(), text);
    }

    static constexpr std::int64_t kTokens = 512, kHidden = 1024;
    ModelSpec model = gpt(2);
    TrainingSpec training;
    PieceSizes sizes;
};

TEST_F(TimePolicies, StartGathersAndReductionsBesideProducts) {
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    EXPECT_THAT(texts(Piece::dense, true), ElementsAre("all_gather", "wait", "matmul", "+=", "activation_backward", "all_gather", "matmul",
                                                       "wait", "reduce_scatter", "+=", "wait", "rms_norm_backward", "add"));
}

TEST_F(TimePolicies, ReduceBehindTheWeightGradientWhereMegatronIsOld) {
    sizes.tp = 2;
    training.megatron.async_tp_reduce = false;
    EXPECT_THAT(texts(Piece::dense, true),
                ElementsAre("matmul", "+=", "activation_backward", "matmul", "+=", "all_reduce", "wait", "rms_norm_backward", "add"));
}

TEST_F(TimePolicies, OverlapInChunks) {
    sizes.tp = 4;
    sizes.sequence_parallel = true;
    training.overlap_tp = true;
    EXPECT_THAT(texts(Piece::dense, false), ElementsAre("rms_norm", "all_gather", "matmul", "wait", "activation", "reduce_scatter",
                                                        "wait for a chunk", "matmul", "wait", "dropout_add"));
    for (const PieceStep& step : steps(Piece::dense, false)) {
        if (step.kind == StepKind::wait && step.share < 1) {
            EXPECT_EQ(step.share, 0.25);
        }
    }
}

TEST_F(TimePolicies, OverlappedTpHoldsTheMultiprocessorsOfItsKernels) {
    sizes.tp = 4;
    sizes.sequence_parallel = true;
    const auto held = [&](Piece piece, bool backward) {
        std::vector<std::int64_t> all;
        for (const PieceStep& step : steps(piece, backward)) {
            if (step.kind == StepKind::start) all.push_back(step.multiprocessors);
        }
        return all;
    };
    EXPECT_THAT(held(Piece::dense, true), Each(-1));
    training.overlap_tp = true;
    for (const bool backward : {false, true}) {
        EXPECT_THAT(held(Piece::dense, backward), AllOf(SizeIs(backward ? 3 : 2), Each(16)));
        EXPECT_THAT(held(Piece::attention, backward), AllOf(SizeIs(backward ? 3 : 2), Each(16)));
    }
    EXPECT_THAT(held(Piece::loss, true), Each(-1)) << "Megatron-LM's own output layer";
}

TEST_F(TimePolicies, SplitTheProjectionByViewsAndFuseBiases) {
    model.qkv_bias = model.mlp_bias = true;
    EXPECT_THAT(texts(Piece::attention, false),
                ElementsAre("rms_norm", "matmul", "rotary", "rotary", "attention", "matmul", "dropout_add"));
    EXPECT_EQ(count(Piece::attention, true, "set_columns"), 1);
    EXPECT_EQ(bytes(Piece::attention, true, "set_columns"), 2 * kTokens * 3 * kHidden * 2) << "all three gradients are read and written";
    EXPECT_EQ(count(Piece::dense, false, "add_bias") + count(Piece::dense, true, "bias_gradient"), 0);
}

TEST_F(TimePolicies, AddBiasesAndDropByKernelsOfTheirOwnWithoutFusion) {
    model.mlp_bias = model.attention_output_bias = true;
    const std::int64_t stream = kTokens * kHidden * 2, width = kTokens * model.ffn * 2, sizes_of_biases = (kHidden + model.ffn) * 2;
    training.megatron.bias_activation_fusion = false;
    EXPECT_EQ(bytes(Piece::dense, false, "add_bias"), 2 * width + model.ffn * 2) << "before the activation alone";
    training.megatron.bias_dropout_fusion = false;
    EXPECT_EQ(bytes(Piece::dense, false, "add_bias"), 2 * width + 2 * stream + sizes_of_biases);
    EXPECT_EQ(bytes(Piece::attention, false, "add_bias"), 2 * stream + kHidden * 2) << "queries' are part of their GEMM";
    EXPECT_EQ(count(Piece::dense, false, "dropout"), 0);
    model.hidden_dropout = 0.1;
    EXPECT_EQ(bytes(Piece::dense, false, "dropout"), 2 * stream);
    EXPECT_EQ(count(Piece::dense, true, "bias_gradient") + count(Piece::dense, true, "dropout"), 0);
}

TEST_F(TimePolicies, AddBiasesByKernelsOfTheirOwnWhereTheModelRulesFusionsOut) {
    model.mlp_bias = true;
    EXPECT_EQ(count(Piece::dense, false, "add_bias"), 0);
    model.activation = Activation::gelu_exact;
    EXPECT_EQ(count(Piece::dense, false, "add_bias"), 1) << "Megatron-LM fuses GELU by tanh";
    model.moe = MoeSpec{};
    model.moe->grouped_gemm = true;
    model.moe_layers.assign(2, false);
    EXPECT_EQ(count(Piece::dense, false, "add_bias"), 2) << "nor does it fuse dropout beside experts with biases";
}

TEST_F(TimePolicies, RunARecomputedMlpWhole) {
    sizes.modules = {M::mlp};
    sizes.tp = 2;
    EXPECT_THAT(texts(Piece::dense, true),
                ElementsAre("matmul", "activation", "matmul", "all_reduce", "wait", "matmul", "+=", "activation_backward", "matmul",
                            "all_reduce", "+=", "wait", "rms_norm_backward", "add"));
}

TEST_F(TimePolicies, KeepExchangedHeads) {
    sizes.cp = 2;
    sizes.cp_comm_type = CpCommType::a2a;
    EXPECT_EQ(count(Piece::attention, false, "all_to_all"), 4) << "queries, keys and values there, the output back";
    EXPECT_EQ(count(Piece::attention, true, "all_to_all"), 4) << "the output's gradient there, three back";
}

TEST_F(TimePolicies, PassScoresThroughPytorchWhereTheFusedSoftmaxDoesNotTakeThem) {
    training.attention = AttentionBackend::unfused;
    sizes.traits.fused_attention = false;
    EXPECT_EQ(count(Piece::attention, false, "softmax_passes"), 0);
    const std::int64_t scores = 16 * kTokens * kTokens * 2;
    training.megatron.masked_softmax_fusion = false;
    EXPECT_EQ(bytes(Piece::attention, false, "softmax_passes"), 12 * scores);
    EXPECT_EQ(bytes(Piece::attention, true, "softmax_passes"), 13 * scores);
    training.megatron.masked_softmax_fusion = true;
    model.attention_dropout = 0.1;
    EXPECT_EQ(bytes(Piece::attention, false, "softmax_passes"), 5 * scores / 2);
}

TEST_F(TimePolicies, DrawMasksInFusedAttention) {
    const auto instructions_of_a_pair = [&](bool backward) {
        double found = -1;
        for (const PieceStep& step : steps(Piece::attention, backward)) {
            if (step.op.part.queries > 0) found = step.op.arithmetic.instructions / (step.op.flops / (2 * (backward ? 5 : 2) * 64));
        }
        return found;
    };
    EXPECT_EQ(instructions_of_a_pair(false), 0);
    model.attention_dropout = 0.1;
    EXPECT_DOUBLE_EQ(instructions_of_a_pair(false), 3.5);
    EXPECT_DOUBLE_EQ(instructions_of_a_pair(true), 22);
    training.attention = AttentionBackend::unfused;
    sizes.traits.fused_attention = false;
    EXPECT_EQ(instructions_of_a_pair(false), 0) << "kernels of their own draw them";
}

TEST_F(TimePolicies, AddWeightGradientsByKernelsOfTheirOwnWithoutFusion) {
    EXPECT_EQ(count(Piece::dense, true, "add_gradient"), 0);
    training.megatron.gradient_accumulation_fusion = false;
    EXPECT_EQ(count(Piece::dense, true, "add_gradient"), count(Piece::dense, true, "+="));
    const std::int64_t weights = (3 + 1) * kHidden * kHidden;
    EXPECT_EQ(bytes(Piece::attention, true, "add_gradient"), weights * (2 + 4 + 4)) << "bf16 gradient, fp32 main gradient there and back";
}

TEST_F(TimePolicies, ActivateHalvesByPytorchWithoutFusion) {
    model.gated_mlp = true;
    EXPECT_EQ(count(Piece::dense, false, "unfused_activation"), 0);
    training.megatron.bias_activation_fusion = false;
    const std::int64_t width = kTokens * model.ffn * 2;
    EXPECT_EQ(bytes(Piece::dense, false, "unfused_activation"), 2 * width);
    EXPECT_EQ(bytes(Piece::dense, true, "unfused_activation"), 8 * width);
}

TEST_F(TimePolicies, TurnQueriesAndKeysByPytorchWithoutRopeFusion) {
    EXPECT_EQ(count(Piece::attention, false, "unfused_rotary"), 0);
    const std::int64_t fused = bytes(Piece::attention, false, "rotary");
    training.megatron.rope_fusion = false;
    EXPECT_EQ(bytes(Piece::attention, false, "unfused_rotary"), 5 * fused) << "12 passes, 2 of which the record has";
    EXPECT_EQ(bytes(Piece::attention, true, "unfused_rotary"), 11 * fused / 2);
}

TEST_F(TimePolicies, SendBesideTheRingsBackward) {
    sizes.cp = 2;
    sizes.cp_comm_type = CpCommType::p2p;
    const std::vector<std::string> backward = texts(Piece::attention, true);
    const auto first = std::find(backward.begin(), backward.end(), "attention_backward");
    ASSERT_NE(first, backward.begin());
    EXPECT_EQ(*(first - 1), "send") << "the next keys and values";
    const auto second = std::find(first + 1, backward.end(), "attention_backward");
    EXPECT_EQ(std::count(first, second, "wait"), 1) << "keys, values and their gradients together";
    EXPECT_EQ(std::count(second, backward.end(), "send"), 1) << "the gradients' way home";
}

TEST_F(TimePolicies, AttendToGatheredKeysAtOnce) {
    sizes.cp = 4;
    sizes.cp_comm_type = CpCommType::all_gather;
    EXPECT_EQ(count(Piece::attention, false, "attention"), 1);
    EXPECT_EQ(count(Piece::attention, false, "merge_attention"), 0);
    EXPECT_EQ(count(Piece::attention, true, "attention_backward"), 1);
    EXPECT_EQ(count(Piece::attention, true, "copy"), 0);
    for (const PieceStep& step : steps(Piece::attention, false)) {
        if (step.op.part.queries == 0) continue;
        EXPECT_EQ(step.op.part.queries, kTokens / 4);
        EXPECT_EQ(step.op.part.keys, kTokens);
    }
}

TEST_F(TimePolicies, FuseAttentionWithAWindow) {
    model.sliding_window = 128;
    for (const PieceStep& step : steps(Piece::attention, false)) {
        if (step.op.part.queries > 0) {
            EXPECT_TRUE(step.op.part.fused);
        }
    }
}

TEST_F(TimePolicies, MakeTheTablesGradientWhole) {
    const std::int64_t stream = kTokens * kHidden * 2, entries = 1024 * kHidden;
    EXPECT_EQ(bytes(Piece::embedding, true, "embedding_backward"), 3 * stream + entries * (2 * 2 + 2 * 4));
}

TEST_F(TimePolicies, PassOverTheLogitsInFp32) {
    const std::int64_t logits = kTokens * 1024;
    EXPECT_EQ(bytes(Piece::loss, false, "fp32_cross_entropy"), 30 * logits);
    EXPECT_EQ(bytes(Piece::loss, true, "scaled_exponentials"), 14 * logits);
    training.fused_cross_entropy = true;
    EXPECT_EQ(bytes(Piece::loss, false, "fused_cross_entropy"), 6 * logits);
    EXPECT_EQ(bytes(Piece::loss, true, "fused_cross_entropy"), 6 * logits);
}

TEST_F(TimePolicies, QuantiseOperandsOnceForTwoProducts) {
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    const std::int64_t rows = kTokens, h = kHidden, wide = 4096;
    // 2 bytes read, and on Hopper a byte written each way with a scale of 4 bytes.
    EXPECT_EQ(bytes(Piece::dense, false, "quantise"), rows * h * 4 + rows * wide * 4 + 2 * 4);
    EXPECT_EQ(bytes(Piece::dense, true, "quantise"), rows * h * 4 + rows * wide * 4 + 2 * 4);
    for (const PieceStep& step : steps(Piece::dense, true)) {
        if (step.op.product.m > 0) {
            EXPECT_EQ(step.op.product.dtype, Dtype::fp8);
        }
    }
    for (const PieceStep& step : steps(Piece::loss, false)) EXPECT_NE(step.op.product.dtype, Dtype::fp8) << "the output layer";
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    std::vector<std::int64_t> gathered;
    for (const PieceStep& step : steps(Piece::dense, true)) {
        if (step.kind == StepKind::start && step.collective == model::CollectiveKind::all_gather) gathered.push_back(step.sent);
    }
    EXPECT_THAT(gathered, ElementsAre(rows * h + 4, rows * h + 4)) << "the output's gradient and the input, a byte an element";
}

class MixtureTimePolicies : public TimePolicies {
protected:
    MixtureTimePolicies() {
        model = mixture(2);
        sizes.ep = 4;
    }
};

TEST_F(MixtureTimePolicies, RouteByPytorchsKernels) {
    EXPECT_EQ(bytes(Piece::mixture, false, "router_scores"), 24 * kTokens * 8);
    EXPECT_EQ(bytes(Piece::mixture, true, "router_scores"), 24 * kTokens * 8);
    EXPECT_EQ(count(Piece::mixture, false, "route"), 0);
}

TEST_F(MixtureTimePolicies, AddGradientsAndActivateExpertsByKernelsOfTheirOwn) {
    EXPECT_EQ(bytes(Piece::mixture, true, "add_gradient") + bytes(Piece::mixture, false, "unfused_activation"), 0);
    training.megatron.gradient_accumulation_fusion = training.megatron.bias_activation_fusion = false;
    EXPECT_GT(bytes(Piece::mixture, true, "add_gradient"), 0);
    const std::int64_t written = bytes(Piece::mixture, false, "activation");
    EXPECT_EQ(model.moe->shared_ffn, 0);
    // The fused kernel reads two widths and writes one, next to a probability of each row.
    EXPECT_NEAR(static_cast<double>(bytes(Piece::mixture, false, "unfused_activation")), 4.0 / 3 * static_cast<double>(written),
                0.01 * static_cast<double>(written));
}

TEST_F(MixtureTimePolicies, SendTokensOnceOrToAllRanks) {
    const auto copies = [&] {
        std::vector<std::int64_t> all;
        for (const PieceStep& step : steps(Piece::mixture, false)) {
            if (step.kind == StepKind::start && step.collective == model::CollectiveKind::all_to_all) all.push_back(step.copies);
        }
        return all;
    };
    EXPECT_THAT(copies(), testing::Each(0));
    model.moe->dispatcher = TokenDispatcher::deep_ep;
    EXPECT_THAT(copies(), testing::ElementsAre(2, 2)) << "there and back, with probabilities";
    model.moe->dispatcher = TokenDispatcher::all_gather;
    EXPECT_THAT(copies(), testing::IsEmpty());
    std::int64_t most = 0;
    for (const PieceStep& step : steps(Piece::mixture, false)) most = step.kind == StepKind::start ? std::max(most, step.sent) : most;
    EXPECT_EQ(most, 4 * kTokens * model.hidden * 2) << "the rows of all ranks";
}

TEST_F(MixtureTimePolicies, SortRowsWithoutEp) {
    sizes.ep = 1;
    const std::int64_t rows = 2 * kTokens * model.hidden * 2;
    EXPECT_EQ(bytes(Piece::mixture, false, "reorder_blocks"), 2 * 2 * rows) << "in front of the experts and behind them";
    EXPECT_EQ(count(Piece::mixture, true, "reorder_blocks"), 2);
    model.moe->dispatcher = TokenDispatcher::all_gather;
    EXPECT_EQ(count(Piece::mixture, false, "reorder_blocks"), 0);
}

TEST_F(MixtureTimePolicies, MultiplyExpertsOneByOneWithoutAGroupedKernel) {
    EXPECT_EQ(count(Piece::mixture, false, "matmul_by_group"), 0);
    model.moe->grouped_gemm = false;
    EXPECT_EQ(count(Piece::mixture, false, "matmul_by_group"), 2);
}

}  // namespace
}  // namespace mgplan::simulator::time_policies_test
