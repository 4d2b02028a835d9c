// Wrong shapes, types and devices are refused by the shape rules, on every device alike.

#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_grouped.hpp"
#include "model/ops/fp8_history.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/grouped_matmul.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "model/ops/xielu.hpp"
#include "tests/model/ops/single_steps.hpp"

namespace mgplan::model::shape_rules_test {
namespace {

#define EXPECT_REFUSED(...) EXPECT_THROW((void)(__VA_ARGS__), std::logic_error)

class ShapeRules : public ::testing::Test {
protected:
    MetaDevice device, elsewhere;

    Tensor of(const Shape& shape, Dtype dtype = Dtype::fp32) { return device.empty(shape, dtype, MemoryCategory::activations, "test"); }
    Tensor bf16(const Shape& shape) { return of(shape, Dtype::bf16); }
    Tensor ids(const Shape& shape) { return of(shape, Dtype::int32); }
    Tensor away(const Shape& shape) { return elsewhere.empty(shape, Dtype::fp32, MemoryCategory::activations, "test"); }
};

TEST_F(ShapeRules, OfMatmulWantMatchingInnerSizes) {
    EXPECT_EQ(matmul(of({3, 4}), of({5, 4}), {false, true}, "y").shape(), (Shape{3, 5}));
    EXPECT_REFUSED(matmul(of({3, 4}), of({5, 4}), {}, "y"));
    EXPECT_REFUSED(matmul(of({3, 4}), bf16({4, 5}), {}, "y"));
    EXPECT_REFUSED(matmul(ids({3, 4}), ids({4, 5}), {}, "y"));
    EXPECT_REFUSED(matmul(of({2, 3, 4}), of({3, 5}), {true, false}, "y"));
    EXPECT_REFUSED(matmul(of({4}), of({4, 5}), {}, "y"));
    EXPECT_REFUSED(matmul(of({3, 4}), away({4, 5}), {}, "y"));
    EXPECT_REFUSED(matmul(of({3, 4}), Tensor(), {}, "y"));
    EXPECT_REFUSED(matmul_accumulate(of({3, 4}), of({4, 5}), {}, of({5, 3})));
    EXPECT_REFUSED(matmul_accumulate(of({3, 4}), of({4, 5}), {}, bf16({3, 5})));
    EXPECT_NO_THROW(matmul_accumulate(bf16({3, 4}), bf16({4, 5}), {}, of({3, 5})));
}

TEST_F(ShapeRules, OfFp8WantCodesWithTheirScaleAlongTheInnerSize) {
    const auto codes = [&](const Shape& shape, Dtype dtype = Dtype::fp8) { return Fp8Tensor{of(shape, dtype), of({kFp8ScaleElements})}; };
    EXPECT_EQ(fp8_matmul(codes({3, 4}), codes({5, 4}), Dtype::bf16, "y").shape(), (Shape{3, 5}));
    EXPECT_EQ(fp8_matmul(codes({3, 4}, Dtype::e5m2), codes({5, 4}), Dtype::bf16, "y").dtype(), Dtype::bf16);
    EXPECT_REFUSED(fp8_matmul(codes({3, 4}), codes({4, 5}), Dtype::bf16, "y"));
    EXPECT_REFUSED(fp8_matmul(codes({3, 4}, Dtype::e5m2), codes({5, 4}, Dtype::e5m2), Dtype::bf16, "y"));
    EXPECT_REFUSED(fp8_matmul(codes({3, 4}), {of({5, 4}, Dtype::fp8), of({1})}, Dtype::bf16, "y")) << "a scale is two values";
    EXPECT_REFUSED(fp8_matmul(codes({3, 4}), {bf16({5, 4}), of({2})}, Dtype::bf16, "y"));
    EXPECT_REFUSED(fp8_matmul(codes({3, 4}), codes({5, 4}), Dtype::int32, "y"));
    EXPECT_REFUSED(fp8_matmul_accumulate(codes({3, 4}), codes({5, 4}), of({5, 3})));
    EXPECT_REFUSED(fp8_matmul_write(codes({3, 4}), codes({5, 4}), ids({3, 5})));
    EXPECT_REFUSED(find_largest(ids({3}), of({2})));
    EXPECT_REFUSED(find_largest(bf16({3}), of({2}, Dtype::bf16)));
    EXPECT_REFUSED(quantise(bf16({3, 4}), codes({3, 5})));
    EXPECT_REFUSED(quantise(bf16({3, 4}), {bf16({3, 4}), of({2})}));
    EXPECT_REFUSED(transpose_codes(bf16({3, 4})));
    EXPECT_REFUSED(transpose_codes(of({3, 4}, Dtype::fp8), of({3, 4}, Dtype::fp8)));
    EXPECT_NO_THROW(transpose_codes(of({3, 4}, Dtype::fp8), of({4, 16}, Dtype::fp8))) << "zeros behind";
    EXPECT_REFUSED(transpose_codes(of({3, 4}, Dtype::fp8), of({4, 2}, Dtype::fp8)));
}

TEST_F(ShapeRules, OfHistoriesInFp8WantAPlaceBehindEachWindow) {
    EXPECT_NO_THROW(follow_largest(of({2}), of({2, 1025}), of({2, 2}), 1));
    EXPECT_REFUSED(follow_largest(of({2}), of({2, 1024}), of({2, 2}), 1));
    EXPECT_REFUSED(follow_largest(of({2}), of({3, 1025}), of({2, 2}), 1));
    EXPECT_REFUSED(follow_largest(of({2}), of({2, 1025}), of({2}), 1));
    EXPECT_REFUSED(follow_largest(bf16({2}), of({2, 1025}), of({2, 2}), 1));
    EXPECT_REFUSED(raise_largest(bf16({3}), of({2})));
}

TEST_F(ShapeRules, OfGroupsInFp8WantAScaleForEachGroup) {
    const std::vector<std::int64_t> rows{2, 0, 3};
    const auto codes = [&](const Shape& shape, std::int64_t groups) { return Fp8Tensor{of(shape, Dtype::fp8), of({groups, 2})}; };
    const Fp8Tensor matrix{of({6, 4}, Dtype::fp8), of({2})};
    const std::vector<Fp8Tensor> three(3, matrix), two(2, matrix);
    EXPECT_EQ(quantise_groups(bf16({5, 4}), Dtype::e5m2, rows, "x").scale.shape(), (Shape{3, 2}));
    EXPECT_EQ(fp8_grouped_matmul(codes({5, 4}, 3), three, rows, Dtype::bf16, "y").shape(), (Shape{5, 6}));
    EXPECT_REFUSED(fp8_grouped_matmul(codes({5, 4}, 3), two, rows, Dtype::bf16, "y"));
    EXPECT_REFUSED(fp8_grouped_matmul(codes({5, 4}, 2), three, rows, Dtype::bf16, "y"));
    EXPECT_REFUSED(fp8_grouped_matmul(codes({6, 4}, 3), three, rows, Dtype::bf16, "y")) << "groups are all rows";
    EXPECT_REFUSED(fp8_grouped_matmul(codes({5, 6}, 3), three, rows, Dtype::bf16, "y"));
    const std::vector<Tensor> sums(3, of({6, 4}));
    EXPECT_NO_THROW(fp8_grouped_matmul_accumulate(codes({5, 6}, 3), codes({5, 4}, 3), rows, sums));
    EXPECT_REFUSED(fp8_grouped_matmul_accumulate(codes({5, 4}, 3), codes({5, 6}, 3), rows, sums));
    EXPECT_REFUSED(fp8_grouped_matmul_accumulate(codes({5, 6}, 3), codes({5, 4}, 3), rows, std::vector<Tensor>(2, of({6, 4}))));
}

TEST_F(ShapeRules, OfNormsWantAWeightForEveryColumn) {
    NormStatistics statistics;
    EXPECT_REFUSED(norm(of({3, 4}), of({3}), {}, Normalization::rms_norm, 0, statistics));
    EXPECT_REFUSED(norm(of({3, 4}), of({4}), of({4}), Normalization::rms_norm, 0, statistics));
    EXPECT_REFUSED(norm(of({3, 4}), bf16({4}), {}, Normalization::rms_norm, 0, statistics));
    EXPECT_REFUSED(norm(of({3, 4}), {}, of({4}), Normalization::layer_norm, 0, statistics)) << "a bias without a weight";
    EXPECT_REFUSED(norm(of({3, 0}), of({0}), {}, Normalization::rms_norm, 0, statistics));
    (void)norm(of({3, 4}), of({4}), {}, Normalization::rms_norm, 0, statistics);
    EXPECT_REFUSED(norm_backward(of({3, 4}), of({3, 4}), of({4}), statistics, Normalization::layer_norm, of({4}), of({4})));
    EXPECT_REFUSED(norm_backward(of({3, 4}), of({2, 4}), of({4}), statistics, Normalization::rms_norm, of({4}), {}));
    EXPECT_REFUSED(norm_backward(of({3, 4}), of({3, 4}), of({4}), statistics, Normalization::rms_norm, bf16({4}), {}));
}

TEST_F(ShapeRules, OfActivationsWantPairsWhereGated) {
    EXPECT_EQ(activation(of({3, 4}), Activation::silu, true).shape(), (Shape{3, 2}));
    EXPECT_REFUSED(activation(of({3, 5}), Activation::silu, true));
    EXPECT_REFUSED(activation_backward(of({3, 4}), of({3, 4}), Activation::silu, true));
    EXPECT_REFUSED(weighted_activation(of({3, 4}), of({4}), Activation::silu, true));
    EXPECT_REFUSED(weighted_activation(bf16({3, 4}), bf16({3}), Activation::silu, true));
}

TEST_F(ShapeRules, OfXieluAndClippedValuesWantOneValueEachAndABound) {
    EXPECT_EQ(xielu(of({3, 4}), of({1}), of({1})).shape(), (Shape{3, 4}));
    EXPECT_REFUSED(xielu(of({3, 4}), of({2}), of({1})));
    EXPECT_REFUSED(xielu(of({3, 4}), of({1}), bf16({1})));
    EXPECT_REFUSED(xielu_backward(of({3, 3}), of({3, 4}), of({1}), of({1}), of({1}), of({1})));
    EXPECT_REFUSED(xielu_backward(of({3, 4}), of({3, 4}), of({1}), of({1}), of({1}), bf16({1})));
    EXPECT_REFUSED(activation(of({3, 4}), Activation::xielu, false)) << "it is an op of its own";
    EXPECT_REFUSED(clip(of({3, 4}), 0));
    EXPECT_REFUSED(clip_gradient(of({3, 4}), of({3, 3}), 1));
    EXPECT_REFUSED(clip_gradient(of({3, 4}), bf16({3, 4}), 1));
}

TEST_F(ShapeRules, OfRowsAndColumnsWantTheirSizes) {
    EXPECT_REFUSED(add_bias(of({3, 4}), of({3})));
    EXPECT_REFUSED(bias_gradient(of({3, 4}), of({3})));
    EXPECT_REFUSED(bias_gradient(of({3, 4}), bf16({4})));
    EXPECT_REFUSED(copy(of({3}), of({4})));
    EXPECT_REFUSED(copy(ids({3}), of({3})));
    EXPECT_REFUSED(add(of({3}), of({4})));
    EXPECT_REFUSED(add(of({3}), bf16({3})));
    EXPECT_REFUSED(add(of({3}), away({3})));
    EXPECT_REFUSED(columns(of({3, 4}), 2, 5));
    EXPECT_REFUSED(columns(of({3, 4}), 2, 1));
    EXPECT_REFUSED(set_columns(of({3, 2}), of({3, 4}), 3));
    EXPECT_REFUSED(set_columns(of({2, 2}), of({3, 4}), 0));
    EXPECT_REFUSED(swap_leading(of({3, 4})));
    EXPECT_REFUSED(embedding(of({3}), of({4, 5}), 0));
    EXPECT_REFUSED(embedding(ids({3}), of({4}), 0));
    EXPECT_REFUSED(embedding_backward(of({3, 5}), ids({2}), 0, of({4, 5})));
    EXPECT_REFUSED(embedding_backward(of({3, 5}), ids({3}), 0, of({4, 6})));
}

TEST_F(ShapeRules, OfCrossEntropyWantRowValues) {
    const Tensor logits = bf16({3, 4}), targets = ids({3}), row = of({3});
    EXPECT_EQ(row_maximum(logits, {0, 4}).dtype(), Dtype::fp32);
    EXPECT_REFUSED(row_maximum(logits, {0, 5}));
    EXPECT_REFUSED(softmax_sums(logits, ids({2}), row, {0, 4}));
    EXPECT_REFUSED(softmax_sums(logits, of({3}), row, {0, 4}));
    EXPECT_REFUSED(softmax_sums(logits, targets, bf16({3}), {0, 4}));
    EXPECT_REFUSED(cross_entropy_backward(logits, targets, row, of({4}), {0, 4}, 1));
    EXPECT_REFUSED(token_losses({of({3}), of({4})}, targets));
    EXPECT_REFUSED(token_losses({of({3}), of({3})}, ids({4})));
    EXPECT_REFUSED(token_losses({of({3}), of({3})}, of({3})));
    EXPECT_REFUSED(add_sum_of_losses(row, of({2}), 0));
    const Tensor sums = of({2}, Dtype::fp64);
    EXPECT_REFUSED(add_sum_of_losses(ids({3}), sums, 0));
    EXPECT_REFUSED(add_sum_of_losses(row, sums, 2));
}

TEST_F(ShapeRules, OfAttentionWantRowsForThePositions) {
    const Positions two = zigzag_positions(4, 2, 1, 0), one = zigzag_positions(8, 1, 1, 0);
    const Tensor q = of({8, 4, 6}), k = of({8, 2, 6}), v = of({8, 2, 5});
    const AttentionResult result = attention(q, k, v, two, two, 1);
    EXPECT_EQ(result.output.shape(), (Shape{8, 4, 5}));
    EXPECT_REFUSED(attention(q, k, v, two, one, 1));
    EXPECT_REFUSED(attention(of({6, 4, 6}), k, v, two, two, 1));
    EXPECT_REFUSED(attention(q, of({8, 3, 6}), of({8, 3, 5}), two, two, 1));
    EXPECT_REFUSED(attention(q, of({8, 2, 7}), v, two, two, 1));
    EXPECT_REFUSED(attention(q, k, of({8, 1, 5}), two, two, 1));
    EXPECT_REFUSED(attention_backward(of({8, 4, 6}), q, k, v, result, two, two, 1));
    EXPECT_REFUSED(rotary(q, zigzag_positions(10, 1, 1, 0), 6, {.base = 10000}, false));
    EXPECT_REFUSED(rotary(q, one, 5, {.base = 10000}, false));
    EXPECT_REFUSED(rotary(q, one, 8, {.base = 10000}, false));
}

TEST_F(ShapeRules, OfPackedHeadsWantTheirWidthInARow) {
    const Positions two = zigzag_positions(4, 2, 1, 0);
    const PackedHeads heads{4, 2, 6};
    const Tensor packed = of({8, 48});
    const AttentionResult result = packed_attention(packed, heads, two, 1);
    EXPECT_EQ(result.output.shape(), (Shape{8, 4, 6}));
    EXPECT_EQ(packed_attention_backward(of({8, 4, 6}), packed, heads, result, two, 1).shape(), packed.shape());
    EXPECT_REFUSED(packed_attention(of({8, 4, 12}), heads, two, 1));
    EXPECT_REFUSED(packed_attention(of({8, 42}), heads, two, 1));
    EXPECT_REFUSED(packed_attention(of({8, 42}), {3, 2, 6}, two, 1));
    EXPECT_REFUSED(packed_attention(packed, heads, zigzag_positions(5, 2, 1, 0), 1));
    EXPECT_REFUSED(packed_attention_backward(of({8, 4, 5}), packed, heads, result, two, 1));
    EXPECT_REFUSED(rotary_in_place(of({8, 42}), heads, two, 4, {.base = 10000}, false));
    EXPECT_REFUSED(rotary_in_place(packed, heads, zigzag_positions(5, 2, 1, 0), 4, {.base = 10000}, false));
    EXPECT_REFUSED(rotary_in_place(packed, heads, two, 3, {.base = 10000}, false));
    EXPECT_REFUSED(rotary_in_place(packed, heads, two, 0, {.base = 10000}, false));
}

TEST_F(ShapeRules, OfLatentKeysWantAPartOfTheirOwn) {
    EXPECT_EQ(join_latent_keys(of({3, 2, 7}), of({3, 5}), 4).k.shape(), (Shape{3, 2, 9}));
    EXPECT_EQ(join_latent_keys(of({3, 2, 7}), of({3, 5}), 4).v.shape(), (Shape{3, 2, 3}));
    EXPECT_EQ(join_latent_keys(of({3, 2, 7}), {}, 4).k.shape(), (Shape{3, 2, 4}));
    EXPECT_REFUSED(join_latent_keys(of({3, 2, 7}), of({3, 5}), 7)) << "no value";
    EXPECT_REFUSED(join_latent_keys(of({3, 2, 7}), of({4, 5}), 4));
    EXPECT_EQ(split_latent_keys(of({3, 2, 9}), of({3, 2, 3}), 4).projected.shape(), (Shape{3, 2, 7}));
    EXPECT_EQ(split_latent_keys(of({3, 2, 9}), of({3, 2, 3}), 4).shared.shape(), (Shape{3, 5}));
    EXPECT_REFUSED(split_latent_keys(of({3, 2, 9}), of({3, 1, 3}), 4));
    EXPECT_REFUSED(split_latent_keys(of({3, 2, 9}), of({3, 2, 3}), 10));
}

// Causal pairs of a sequence of s: s (s + 1) / 2 in each head; two products of 2 FLOPs a pair and value.
TEST_F(ShapeRules, OfAttentionCountTheVisiblePairs) {
    const auto flops_of = [&](const Positions& queries, const Positions& keys) {
        device.forget_ops();
        (void)attention(of({queries.rows(), 3, 2}), of({keys.rows(), 1, 2}), of({keys.rows(), 1, 5}), queries, keys, 1);
        return device.ops().back().flops;
    };
    EXPECT_EQ(flops_of(zigzag_positions(10, 2, 1, 0), zigzag_positions(10, 2, 1, 0)), 2 * (2 + 5) * 3 * 2 * 55.0);
    EXPECT_EQ(flops_of(zigzag_positions(7, 1, 1, 0), zigzag_positions(7, 1, 1, 0)), 2 * (2 + 5) * 3 * 28.0) << "odd lengths too";
    double all = 0;
    for (int query = 0; query < 3; ++query) {
        for (int key = 0; key < 3; ++key) {
            const double part = flops_of(zigzag_positions(12, 1, 3, query), zigzag_positions(12, 1, 3, key));
            const Positions queries = zigzag_positions(12, 1, 3, query), keys = zigzag_positions(12, 1, 3, key);
            int pairs = 0;
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) pairs += keys.at(j) <= queries.at(i) ? 1 : 0;
            }
            EXPECT_EQ(part, 2 * (2 + 5) * 3 * pairs) << query << " " << key;
            all += part;
        }
    }
    EXPECT_EQ(all, 2 * (2 + 5) * 3 * 78.0) << "no pair twice, none forgotten";
}

TEST_F(ShapeRules, OfMatmulCountTheirFlopsAndBytes) {
    (void)matmul(bf16({3, 4}), bf16({4, 5}), {}, "y");
    EXPECT_EQ(device.ops().back().name, "matmul");
    EXPECT_EQ(device.ops().back().flops, 2 * 3 * 4 * 5);
    EXPECT_EQ(device.ops().back().bytes_read, 2 * (12 + 20));
    EXPECT_EQ(device.ops().back().bytes_written, 2 * 15);
}

TEST_F(ShapeRules, OfDropoutWantRowsWithPositions) {
    DropoutPlace place{.probability = 0.5, .positions = zigzag_positions(4, 1, 1, 0), .first_row = 2};
    EXPECT_REFUSED(dropout_add(of({3, 5}), of({3, 5}), place));
    EXPECT_REFUSED(dropout_add(of({2, 5}), of({3, 5}), place));
    EXPECT_NO_THROW((void)dropout_add(of({2, 5}), of({2, 5}), place));
    place.probability = 1;
    EXPECT_REFUSED(dropout_backward(of({2, 5}), place));
}

TEST_F(ShapeRules, OfAdamWantMainValuesOfEqualLength) {
    EXPECT_NO_THROW(adam_step(of({3}), of({3}), of({3}), bf16({3}), {}));
    EXPECT_REFUSED(adam_step(of({3}), of({3}), of({4}), bf16({3}), {}));
    EXPECT_REFUSED(adam_step(bf16({3}), bf16({3}), bf16({3}), bf16({3}), {}));
    EXPECT_REFUSED(adam_step(of({3}), of({3}), of({3}), of({3}), {.step = 0}));
    EXPECT_NO_THROW(adam_step(of({3}), of({3}), of({3}), of({3}), {}, bf16({3})));
    EXPECT_REFUSED(adam_step(of({3}), of({3}), of({3}), of({3}), {}, bf16({4})));
    EXPECT_REFUSED(adam_step(of({3}), of({3}), of({3}), of({3}), {}, of({3})));
}

TEST_F(ShapeRules, OfMomentumWantMainValuesOfEqualLength) {
    EXPECT_NO_THROW(momentum_step(of({3}), of({3}), bf16({3}), {}));
    EXPECT_REFUSED(momentum_step(of({3}), of({4}), bf16({3}), {}));
    EXPECT_REFUSED(momentum_step(of({3}), bf16({3}), bf16({3}), {}));
    EXPECT_REFUSED(momentum_step(bf16({3}), bf16({3}), bf16({3}), {}));
}

TEST_F(ShapeRules, OfRoutingWantCountsAndCopies) {
    EXPECT_REFUSED(route(of({3, 4}), 5, RouterScore::softmax));
    EXPECT_REFUSED(route(of({3, 4}), 0, RouterScore::softmax));
    const Routing routing = route(bf16({3, 4}), 2, RouterScore::softmax);
    EXPECT_REFUSED(route_backward(of({3, 4}), routing, RouterScore::softmax));
    const Tensor total = device.empty({1}, Dtype::fp64, MemoryCategory::activations, "x"), narrow = of({1});
    EXPECT_NO_THROW(auxiliary_loss(of({3, 4}), RouterScore::softmax, count_by_expert(routing.experts, 4), 3, 2, 1, total));
    EXPECT_REFUSED(auxiliary_loss(of({3, 4}), RouterScore::softmax, count_by_expert(routing.experts, 3), 3, 2, 1, total));
    EXPECT_REFUSED(auxiliary_loss(of({3, 4}), RouterScore::softmax, count_by_expert(routing.experts, 4), 3, 2, 1, narrow));
    EXPECT_REFUSED(add_counts_by_expert(routing.experts, of({4})));
    EXPECT_EQ(gate_rows(of({3, 4}), of({3, 1})).shape(), (Shape{3, 4}));
    EXPECT_REFUSED(gate_rows(of({3, 4}), of({4, 1})));
    EXPECT_REFUSED(gate_rows(of({3, 4}), bf16({3, 1})));
    EXPECT_REFUSED(keep_within_capacity(routing, 0));
    EXPECT_EQ(sort_and_pad(routing.experts, 4, 3).source.shape(), (Shape{12}));
    const std::vector<Tensor> two{of({5, 4}), of({5, 4})}, sums{of({4, 5}), of({4, 5})};
    EXPECT_EQ(grouped_matmul(of({3, 4}), two, std::vector<std::int64_t>{1, 2}, true, "y").shape(), (Shape{3, 5}));
    EXPECT_REFUSED(grouped_matmul(of({3, 4}), two, std::vector<std::int64_t>{1, 1}, true, "y")) << "a row without a group";
    EXPECT_REFUSED(grouped_matmul(of({3, 4}), two, std::vector<std::int64_t>{4, -1}, true, "y"));
    EXPECT_REFUSED(grouped_matmul(of({3, 4}), two, std::vector<std::int64_t>{1, 2}, false, "y"));
    EXPECT_REFUSED(grouped_matmul(of({3, 4}), two, std::vector<std::int64_t>{3}, true, "y"));
    EXPECT_NO_THROW(grouped_matmul_accumulate(of({3, 4}), of({3, 5}), std::vector<std::int64_t>{1, 2}, sums));
    EXPECT_REFUSED(grouped_matmul_accumulate(of({3, 4}), of({2, 5}), std::vector<std::int64_t>{1, 2}, sums));
    EXPECT_REFUSED(grouped_matmul_accumulate(of({3, 5}), of({3, 4}), std::vector<std::int64_t>{1, 2}, sums));
    const Tensor counts = count_by_expert(routing.experts, 4);
    EXPECT_EQ(counts.shape(), (Shape{4}));
    EXPECT_REFUSED(sort_by_expert(routing.experts, of({4}), 6)) << "counts are int32";
    EXPECT_REFUSED(sort_by_expert(routing.experts, counts, 7));
    EXPECT_REFUSED(sort_by_expert(routing.experts, counts, -1));
    const Permutation permutation = sort_by_expert(routing.experts, counts, 6);
    EXPECT_EQ(permute_rows(of({3, 7}), permutation, 2).shape(), (Shape{6, 7}));
    EXPECT_REFUSED(unpermute_rows(of({5, 7}), permutation, 3, 2));
    EXPECT_REFUSED(reorder_blocks(of({4, 2}), {1, 2}, {0, 1}));
    EXPECT_REFUSED(reorder_blocks(of({4, 2}), {1, 3}, {0}));
}

}  // namespace
}  // namespace mgplan::model::shape_rules_test
