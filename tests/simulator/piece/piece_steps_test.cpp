// What a record holds beside tensors: ops and collectives in order.

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/piece/piece_trace.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::piece_steps_test {
namespace {

using testing::ElementsAre;
using M = RecomputeModule;

std::string text_of(const PieceStep& step) {
    constexpr std::array<const char*, kLayerGroups> kGroups{"tp", "cp", "ep", "etp", "tp-cp"};
    const std::string group = kGroups[static_cast<std::size_t>(step.group)];
    if (step.kind == StepKind::wait) return "wait " + group;
    if (step.kind == StepKind::start) return std::string(to_string(step.collective)) + " " + group;
    return std::string(step.op.name) + (step.op.product.accumulate ? " +=" : "");
}

std::vector<std::string> texts_of(const PieceSteps& steps) {
    std::vector<std::string> texts;
    for (const PieceStep& step : steps) texts.push_back(text_of(step));
    return texts;
}

class PieceRecord : public testing::Test {
protected:
    PieceRecord() {
        model.hidden_dropout = model.attention_dropout = 0;
        model.normalization = Normalization::rms_norm;
        model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
        sizes.sequence = 512;
        sizes.keep_steps = true;
        sizes.traits.kind = model::DeviceKind::cuda;
    }
    [[nodiscard]] PieceSteps steps(Piece piece, bool backward) const {
        return trace_dense_pieces(model, sizes).range(piece, backward).steps;
    }

    ModelSpec model = gpt(2);
    PieceSizes sizes;
};

TEST_F(PieceRecord, OfAnMlpIsItsOpsAndItsCollectivesInOrder) {
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    EXPECT_THAT(texts_of(steps(Piece::dense, false)), ElementsAre("rms_norm", "all_gather tp", "wait tp", "matmul", "activation", "matmul",
                                                                  "reduce_scatter tp", "wait tp", "dropout_add"));
    std::vector<std::string> backward{
        "all_gather tp", "wait tp",           "matmul",    "matmul +=", "activation_backward", "all_gather tp", "matmul",
        "wait tp",       "reduce_scatter tp", "matmul +=", "wait tp",   "rms_norm_backward"};
    EXPECT_EQ(texts_of(steps(Piece::dense, true)), backward) << "the norm adds the path's gradient";
    backward.emplace_back("add");
    sizes.engine = Engine::megatron;
    EXPECT_EQ(texts_of(steps(Piece::dense, true)), backward) << "autograd adds it";
}

TEST_F(PieceRecord, WithoutSequenceParallelismReducesBesideTheWeightsGradientAndTheBiases) {
    sizes.tp = 2;
    model.mlp_bias = true;
    EXPECT_THAT(texts_of(steps(Piece::dense, true)), ElementsAre("bias_gradient", "matmul", "matmul +=", "activation_backward", "matmul",
                                                                 "all_reduce tp", "matmul +=", "add", "wait tp", "rms_norm_backward"))
        << "the second layer's is the same on both ranks";
}

TEST_F(PieceRecord, OfAnMlpWithBiasesIsThatWithoutThemButForAddingTheirGradients) {
    const std::vector<std::string> forward = texts_of(steps(Piece::dense, false));
    model.mlp_bias = true;
    EXPECT_EQ(texts_of(steps(Piece::dense, false)), forward) << "products add them";
    EXPECT_THAT(texts_of(steps(Piece::dense, true)),
                ElementsAre("matmul", "matmul +=", "add", "activation_backward", "matmul", "matmul +=", "add", "rms_norm_backward"));
    sizes.dtype = Dtype::fp32;
    EXPECT_THAT(texts_of(steps(Piece::dense, false)), testing::Contains("add_bias").Times(2));
    EXPECT_THAT(texts_of(steps(Piece::dense, true)), testing::Contains("bias_gradient").Times(2));
    sizes.dtype = Dtype::bf16;
    sizes.traits.kind = model::DeviceKind::cpu;
    EXPECT_THAT(texts_of(steps(Piece::dense, false)), testing::Contains("add_bias").Times(2));
}

TEST_F(PieceRecord, OfEngineMegatronDoesNotDependOnWhatOurProductsDoForBiases) {
    sizes.engine = Engine::megatron;
    model.mlp_bias = true;
    const PieceSteps forward = steps(Piece::dense, false);
    const auto first = std::ranges::find_if(forward, [](const PieceStep& step) { return step.op.product.m > 0; });
    ASSERT_NE(first, forward.end());
    const model::ProductSizes& product = first->op.product;
    EXPECT_EQ(first->op.bytes_read, 2 * (product.m * product.k + product.k * product.n)) << "no bias is among them";
}

TEST_F(PieceRecord, TellsWhatEachStepIsFor) {
    sizes.modules = {M::mlp};
    const PieceSteps backward = steps(Piece::dense, true);
    std::vector<StepPass> passes;
    for (const PieceStep& step : backward) passes.push_back(step.pass);
    using enum StepPass;
    // First product and activation again; second layer's gradients, activation's, first layer's, norm's with the residual's.
    EXPECT_THAT(passes, ElementsAre(recompute, recompute, input_gradient, weight_gradient, input_gradient, input_gradient, weight_gradient,
                                    input_gradient));
    for (const PieceStep& step : steps(Piece::dense, false)) EXPECT_EQ(step.pass, forward);
}

TEST_F(PieceRecord, CountsSizesBytesAndPayload) {
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    const PieceSteps forward = steps(Piece::dense, false);
    EXPECT_EQ(forward[1].sent, 512 * 1024 * 2) << "the gathered rows";
    const model::OpRecord& first = forward[3].op;
    EXPECT_EQ(first.product.m, 512);
    EXPECT_EQ(first.product.n, 4096 / 2);
    EXPECT_EQ(first.product.k, 1024);
    EXPECT_EQ(first.bytes_read, 2 * (512 * 1024 + 1024 * 2048));
    EXPECT_EQ(first.bytes_written, 2 * 512 * 2048);
    EXPECT_EQ(first.flops, 2.0 * 512 * 2048 * 1024);
}

TEST_F(PieceRecord, OfARingSendsTheNextKeysBesideEachPart) {
    sizes.cp = 3;
    sizes.sequence = 528;
    const std::vector<std::string> forward = texts_of(steps(Piece::attention, false));
    const auto first = std::find(forward.begin(), forward.end(), "send cp");
    ASSERT_NE(first, forward.end());
    // Keys and values, each sent and received, start together, and are waited for together.
    EXPECT_THAT(std::vector<std::string>(first, first + 4), ElementsAre("send cp", "attention", "wait cp", "send cp"));
    EXPECT_EQ(std::count(forward.begin(), forward.end(), "send cp"), 2);
    EXPECT_EQ(std::count(forward.begin(), forward.end(), "merge_attention"), 2);
    for (const PieceStep& step : steps(Piece::attention, false)) {
        if (step.kind != StepKind::start) continue;
        EXPECT_EQ(step.sent, 2 * 176 * 1024 * 2) << "keys and values";
        EXPECT_EQ(step.received, step.sent);
    }
}

TEST_F(PieceRecord, GrowsWithRows) {
    const PieceTrace one = trace_dense_pieces(model, sizes);
    PieceSizes larger = sizes;
    larger.micro_batch = 2;
    const PieceTrace two = trace_dense_pieces(model, larger);
    larger.micro_batch = 5;
    const PieceTrace five = trace_dense_pieces(model, larger);
    const auto grown = with_rows(one, two, 5);
    ASSERT_TRUE(grown);
    for (const PieceRange& range : five.pieces) {
        const PieceSteps& expected = range.steps;
        const PieceSteps& made = grown->range(range.piece, range.backward).steps;
        ASSERT_EQ(made.size(), expected.size());
        for (std::size_t i = 0; i < made.size(); ++i) {
            EXPECT_EQ(made[i].op.product, expected[i].op.product) << expected[i].op.name;
            EXPECT_EQ(made[i].op.bytes_read, expected[i].op.bytes_read) << expected[i].op.name;
            EXPECT_EQ(made[i].op.bytes_written, expected[i].op.bytes_written) << expected[i].op.name;
            EXPECT_EQ(made[i].op.part.batch, expected[i].op.part.batch) << expected[i].op.name;
            EXPECT_DOUBLE_EQ(made[i].op.flops, expected[i].op.flops) << expected[i].op.name;
        }
    }
}

TEST_F(PieceRecord, GrowsItsLaunchesWithRows) {
    model.normalization = Normalization::layer_norm;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    for (const bool fused : {false, true}) {
        sizes.dtype = fused ? Dtype::bf16 : Dtype::fp32;
        sizes.sequence = fused ? 2048 : 4096;  // column sums of up to 1,024 rows take one launch less
        const auto trace = [&](std::int64_t micro_batch) {
            PieceSizes larger = sizes;
            larger.micro_batch = micro_batch;
            return trace_dense_pieces(model, larger);
        };
        const PieceTrace one = trace(1), two = trace(2), five = trace(5);
        const auto grown = with_rows(one, two, 5);
        ASSERT_TRUE(grown);
        std::int64_t most = 0;
        for (const PieceRange& range : five.pieces) {
            const PieceSteps& made = grown->range(range.piece, range.backward).steps;
            ASSERT_EQ(made.size(), range.steps.size());
            for (std::size_t i = 0; i < made.size(); ++i) {
                most = std::max(most, range.steps[i].op.launches);
                // Blocks of scores are whole, so that five sequences have a few more or less than five times those of one.
                EXPECT_NEAR(static_cast<double>(made[i].op.launches), static_cast<double>(range.steps[i].op.launches),
                            0.06 * static_cast<double>(range.steps[i].op.launches))
                    << range.steps[i].op.name;
            }
        }
        EXPECT_EQ(most > 100, !fused) << "separate products come in blocks";
    }
}

TEST(PieceRecordOfMixtures, MarksTheRouterAndCountsWhatArrives) {
    const ModelSpec model = mixture(2);
    PieceSizes sizes;
    sizes.sequence = 512;
    sizes.keep_steps = true;
    sizes.ep = 4;
    sizes.traits.kind = model::DeviceKind::cuda;
    const PieceSteps forward = trace_mixture(model, sizes, 2).range(Piece::mixture, false).steps;
    const auto is_router_product = [](const PieceStep& step) { return step.router && step.op.product.n == 8; };
    EXPECT_EQ(std::count_if(forward.begin(), forward.end(), is_router_product), 1);
    const std::int64_t row = model.hidden * 2;
    std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // sent and received by all-to-alls of rows
    for (const PieceStep& step : forward) {
        if (step.kind == StepKind::start && step.collective == model::CollectiveKind::all_to_all && step.sent >= row * 512)
            rows.emplace_back(step.sent / row, step.received / row);
    }
    // Two copies of each token leave; twice as many as leave arrive at this rank, and go back.
    EXPECT_THAT(rows, ElementsAre(std::pair<std::int64_t, std::int64_t>{1024, 2048}, std::pair<std::int64_t, std::int64_t>{2048, 1024}));
}

}  // namespace
}  // namespace mgplan::simulator::piece_steps_test
