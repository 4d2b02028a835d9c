#include "simulator/price/op_price.hpp"

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "simulator/cluster_parameters.hpp"

namespace mgplan::simulator::op_price_test {
namespace {

using model::OpRecord;

class OpPrice : public testing::Test {
protected:
    [[nodiscard]] double price(const OpRecord& record) const { return op_seconds(record, {&fp8_, &bf16_}); }

    static OpRecord product(bool accumulate, Dtype dtype) {
        OpRecord record{"matmul", 2.0 * 4096 * 1024 * 512, 0, 0};
        record.product = {4096, 1024, 512, false, true, accumulate, dtype};
        return record;
    }
    static OpRecord grouped(std::int64_t groups, bool accumulate) {
        OpRecord record{"grouped_matmul"};
        record.grouped = {groups, 512, 1024, 256, true, accumulate, Dtype::bf16};
        return record;
    }
    static OpRecord attention(std::string_view name, bool fused) {
        OpRecord record{name, name == "attention" ? 4.0 * 2048 * 2048 / 2 * 32 * 128 : 10.0 * 2048 * 2048 / 2 * 32 * 128, 10, 10};
        record.part = {2048, 2048, 1, 32, 8, 128, 128, 0, fused};
        return record;
    }

    ClusterSpec cluster_ = load_cluster("dgx-h100");
    Calibration calibration_ = calibration_of(cluster_);
    KernelTimes bf16_{cluster_, calibration_, Precision::bf16}, fp8_{cluster_, calibration_, Precision::fp8};
};

TEST_F(OpPrice, OfProductsFollowsTheirTypeAndWhetherTheyAddIntoAGradient) {
    EXPECT_EQ(price(product(false, Dtype::bf16)), bf16_.gemm(4096, 1024, 512));
    EXPECT_EQ(price(product(false, Dtype::fp8)), fp8_.gemm(4096, 1024, 512));
    EXPECT_EQ(price(product(true, Dtype::bf16)), bf16_.weight_gradient(4096, 1024, 512));
    EXPECT_LT(price(product(false, Dtype::fp8)), price(product(false, Dtype::bf16)));
}

TEST_F(OpPrice, OfGroupedProductsIsAGroupedKernelsOrOfOneGroupAPlainProducts) {
    EXPECT_EQ(price(grouped(8, false)), bf16_.grouped_gemm(512, 1024, 256, 8));
    EXPECT_EQ(price(grouped(8, true)), bf16_.grouped_weight_gradient(512, 1024, 256, 8));
    EXPECT_EQ(price(grouped(1, false)), bf16_.gemm(512, 1024, 256));
    OpRecord one_by_one = grouped(8, true);
    one_by_one.name = "matmul_by_group";
    EXPECT_EQ(price(one_by_one), 8 * bf16_.weight_gradient(512, 1024, 256));
}

TEST_F(OpPrice, OfFusedAttentionCountsTheCausalHalf) {
    const double half = 2.0 * 2048 * 2048 * 32 * 128;
    EXPECT_DOUBLE_EQ(price(attention("attention", true)), bf16_.attention_forward(half, 2048, 128));
    EXPECT_DOUBLE_EQ(price(attention("attention_backward", true)), bf16_.attention_backward(2.5 * half, 2048, 128));
}

TEST_F(OpPrice, OfDroppedAttentionAddsTheInstructionsOfItsMasks) {
    OpRecord dropped = attention("attention", true);
    const double whole = price(dropped);
    dropped.arithmetic.instructions = 128e6;
    const double seconds = bf16_.multiprocessor_clocks(1e6) - bf16_.multiprocessor_clocks(0);
    EXPECT_DOUBLE_EQ(price(dropped), whole + seconds);
    const auto packed = [&](double instructions) {
        dropped.arithmetic.instructions = instructions;
        return op_seconds(dropped, {.products = &fp8_, .storage = &bf16_, .attention_share = 0.25});
    };
    EXPECT_NEAR(packed(128e6) - packed(0), seconds / 4, 1e-12) << "pairs of other documents are neither attended to nor dropped";
}

TEST_F(OpPrice, OfAWindowCountsWhatTilesWalk) {
    OpRecord windowed = attention("attention", true);
    const double width = 2.0 * 32 * 256;  // FLOPs of a query and a key
    windowed.part.window = 256;
    windowed.flops = width * (2048 * 256.0 - 256 * 255 / 2.0);
    EXPECT_DOUBLE_EQ(price(windowed),
                     bf16_.attention_forward(windowed.flops + width * 2048 * 5 * 128 * (1 - 256 / 2048.0), 256 + 128, 128));
    windowed.part.window = 2048;  // hides nothing
    EXPECT_DOUBLE_EQ(price(windowed), price(attention("attention", true)));
}

TEST_F(OpPrice, OfUnfusedAttentionIsItsProductsAndASoftmaxOverAllScores) {
    const double scores = 32.0 * 2048 * 2048 * 2;
    EXPECT_DOUBLE_EQ(price(attention("attention", false)),
                     bf16_.gemm(2048, 2048, 128, 32) + bf16_.gemm(2048, 128, 2048, 32) + bf16_.memory_bound(2 * scores, Traffic::softmax));
    EXPECT_DOUBLE_EQ(
        price(attention("attention_backward", false)),
        2 * (bf16_.gemm(2048, 2048, 128, 32) + bf16_.gemm(2048, 128, 2048, 32)) + bf16_.memory_bound(3 * scores, Traffic::softmax));
}

TEST_F(OpPrice, CountsTheKernelsThatAFrameworkIssues) {
    EXPECT_EQ(op_kernels(product(false, Dtype::bf16)), 1);
    EXPECT_EQ(op_kernels(product(true, Dtype::bf16)), 2);
    EXPECT_EQ(op_kernels(attention("attention", true)), 1);
    EXPECT_EQ(op_kernels(attention("attention_backward", true)), 3);
    EXPECT_EQ(op_kernels({"rms_norm", 0, 1, 1}), 1);
    EXPECT_EQ(op_kernels({"add", 0, 1, 1}), 0) << "of gradients";
    EXPECT_EQ(op_kernels({"rms_norm_backward", 0, 1, 1}), 2);
}

TEST_F(OpPrice, EngineMgplanIssuesWhatItLaunches) {
    PieceStep op, start, other;
    op.op = {"rms_norm_backward", 0, 1, 1, 4};
    EXPECT_EQ(step_kernels(op, Engine::mgplan), 4);
    EXPECT_EQ(step_kernels(op, Engine::megatron), 2) << "modules of a framework";
    start.kind = other.kind = StepKind::start;
    EXPECT_EQ(step_kernels(start, Engine::mgplan), 1);
    other.collective = model::CollectiveKind::receive;
    EXPECT_EQ(step_kernels(other, Engine::mgplan), 0) << "with the send beside it";
    EXPECT_EQ(step_kernels(PieceStep::wait_for(start), Engine::mgplan), 0);
}

TEST_F(OpPrice, OfAllElseIsItsBytesAtTheBandwidthOfItsKindOfAccess) {
    EXPECT_EQ(price({"add", 5, 3000, 2000}), bf16_.memory_bound(5000));
    EXPECT_EQ(price({"permute_rows", 0, 3000, 2000}), bf16_.memory_bound(5000, Traffic::permutation));
    EXPECT_EQ(price({"softmax_sums", 0, 3000, 2000}), bf16_.memory_bound(5000, Traffic::cross_entropy));
}

}  // namespace
}  // namespace mgplan::simulator::op_price_test
