// Every backward against central differences of its forward, in fp64.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "model/ops/sinks.hpp"
#include "model/ops/xielu.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::gradients_test {
namespace {

class Gradients : public ::testing::Test {
protected:
    runtime::CpuDevice device;
    Maker maker{device, Dtype::fp64};
};

// y = op(a) op(b): the gradient of a is dy · op(b)ᵀ or, where a is read transposed, op(b) · dyᵀ; the same for b.
TEST_F(Gradients, OfMatmulAreMatmuls) {
    for (const Transposes t : {Transposes{false, false}, {true, false}, {false, true}, {true, true}}) {
        const Tensor a = maker.random(t.a ? Shape{5, 3} : Shape{3, 5}), b = maker.random(t.b ? Shape{4, 5} : Shape{5, 4});
        const Tensor dy = maker.random({3, 4});
        const auto loss = [&] { return weigh(matmul(a, b, t, "y"), dy); };
        const Tensor da = t.a ? matmul(b, dy, {t.b, true}, "da") : matmul(dy, b, {false, !t.b}, "da");
        const Tensor db = t.b ? matmul(dy, a, {true, t.a}, "db") : matmul(a, dy, {!t.a, false}, "db");
        expect_gradient("a", a, da, loss);
        expect_gradient("b", b, db, loss);
    }
}

TEST_F(Gradients, OfNormsHoldForInputWeightAndBias) {
    for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm}) {
        const bool centred = kind == Normalization::layer_norm;
        const Tensor x = maker.random({3, 2, 7}), weight = maker.random({7}), dy = maker.random({3, 2, 7});
        const Tensor bias = centred ? maker.random({7}) : Tensor();
        NormStatistics statistics;
        const auto loss = [&] { return weigh(norm(x, weight, bias, kind, 1e-5, statistics), dy); };
        loss();
        const Tensor weight_gradient = maker.zeros({7}), bias_gradient = centred ? maker.zeros({7}) : Tensor();
        const Tensor dx = norm_backward(dy, x, weight, statistics, kind, weight_gradient, bias_gradient);
        expect_gradient("x", x, dx, loss);
        expect_gradient("weight", weight, weight_gradient, loss);
        if (centred) expect_gradient("bias", bias, bias_gradient, loss);
    }
}

TEST_F(Gradients, OfActivationsHoldPlainGatedAndWeighted) {
    for (const auto kind : {Activation::gelu, Activation::silu, Activation::relu, Activation::squared_relu, Activation::gelu_exact,
                            Activation::clamped_swish}) {
        for (const bool gated : {false, true}) {
            // Away from 0, where ReLU has no slope: numbers are multiples of 1/64, so 1/128 lies between them.
            const Tensor x = maker.random({5, 6}), dy = maker.random({5, gated ? 3 : 6}), weights = maker.random({5});
            auto values = read(x);
            for (double& value : values) value = 3 * (value + 1.0 / 128);
            device.write(x, values.data());
            const std::string what = "activation " + std::to_string(static_cast<int>(kind)) + (gated ? " gated" : "");
            expect_gradient(what, x, activation_backward(dy, x, kind, gated), [&] { return weigh(activation(x, kind, gated), dy); });
            const auto loss = [&] { return weigh(weighted_activation(x, weights, kind, gated), dy); };
            Tensor d_weights;
            const Tensor dx = weighted_activation_backward(dy, x, weights, kind, gated, d_weights);
            expect_gradient(what + " weighted", x, dx, loss);
            expect_gradient(what + " weights", weights, d_weights, loss);
        }
    }
}

TEST_F(Gradients, OfNormsWithoutAWeightAndOfClippedValuesHold) {
    const Tensor x = maker.random({6, 7}), dy = maker.random({6, 7});
    for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm}) {
        NormStatistics statistics;
        const auto loss = [&] { return weigh(norm(x, {}, {}, kind, 1e-5, statistics), dy); };
        loss();
        expect_gradient("x", x, norm_backward(dy, x, {}, statistics, kind, {}, {}), loss);
    }
    // Numbers are multiples of 1/64: the bound lies between two.
    const double bound = 0.5 + 1.0 / 128;
    const auto clipped = [&] {
        Tensor y = device.empty(x.shape(), Dtype::fp64, MemoryCategory::activations, "clipped");
        copy(x, y);
        clip(y, bound);
        return y;
    };
    const Tensor gradient = device.empty(x.shape(), Dtype::fp64, MemoryCategory::activations, "gradient");
    copy(dy, gradient);
    clip_gradient(gradient, clipped(), bound);
    expect_gradient("clipped", x, gradient, [&] { return weigh(clipped(), dy); });
    const auto passed = read(gradient), all = read(dy);
    EXPECT_NE(passed, all) << "some values reach the bound";
}

TEST_F(Gradients, OfXieluHoldForInputAndBothTrainedValues) {
    const Tensor x = maker.random({5, 6}), dy = maker.random({5, 6}), positive = maker.random({1}), negative = maker.random({1});
    auto values = read(x);
    for (double& value : values) value = 3 * (value + 1.0 / 128);
    device.write(x, values.data());
    const auto loss = [&] { return weigh(xielu(x, positive, negative), dy); };
    const Tensor d_positive = maker.zeros({1}), d_negative = maker.zeros({1});
    const Tensor dx = xielu_backward(dy, x, positive, negative, d_positive, d_negative);
    expect_gradient("x", x, dx, loss);
    expect_gradient("positive", positive, d_positive, loss);
    expect_gradient("negative", negative, d_negative, loss);
    // arXiv 2411.13010, with softplus(0) = ln 2: f(1) = ln 2 + 1/2, f(-1) = (ln 2 + 1/2)·(1/e) - 1/2.
    const Tensor at = maker.zeros({2}), zero = maker.zeros({1});
    const std::vector<double> ones{1, -1};
    device.write(at, ones.data());
    const auto y = read(xielu(at, zero, zero));
    EXPECT_NEAR(y[0], std::log(2.0) + 0.5, 1e-15);
    EXPECT_NEAR(y[1], (std::log(2.0) + 0.5) * std::exp(-1.0) - 0.5, 1e-15);
}

TEST_F(Gradients, OfLatentKeysAreSummedOverHeadsWhereShared) {
    const Tensor projected = maker.random({4, 3, 5}), shared = maker.random({4, 2}), dk = maker.random({4, 3, 4}),
                 dv = maker.random({4, 3, 3});
    const auto loss = [&] {
        const LatentKeys keys = join_latent_keys(projected, shared, 2);
        return weigh(keys.k, dk) + weigh(keys.v, dv);
    };
    const LatentKeyGradients gradients = split_latent_keys(dk, dv, 2);
    expect_gradient("projected", projected, gradients.projected, loss);
    expect_gradient("shared", shared, gradients.shared, loss);
    EXPECT_FALSE(split_latent_keys(maker.random({4, 3, 2}), dv, 2).shared.defined()) << "no part is shared";
}

TEST_F(Gradients, OfBiasesAreColumnSums) {
    const Tensor x = maker.random({5, 3}), bias = maker.random({3}), dy = maker.random({5, 3}), gradient = maker.zeros({3});
    bias_gradient(dy, gradient);
    expect_gradient("bias", bias, gradient, [&] {
        const Tensor y = maker.zeros({5, 3});
        copy(x, y);
        add_bias(y, bias);
        return weigh(y, dy);
    });
}

TEST_F(Gradients, OfEmbeddingsGoToTheRowsLookedUp) {
    const Tensor table = maker.random({4, 3}), dy = maker.random({6, 3}), gradient = maker.zeros({4, 3});
    const Tensor ids = maker.ids({12, 10, 12, 9, 14, 13}, {6});  // 9 and 14 lie outside [10, 14)
    embedding_backward(dy, ids, 10, gradient);
    expect_gradient("table", table, gradient, [&] { return weigh(embedding(ids, table, 10), dy); });
    EXPECT_EQ(read(gradient)[3], 0) << "id 11 was not looked up";
}

// Two shards of a vocabulary of 7 in 4 + 3 columns and one of padding; sums over shards stand for the all-reduces.
TEST_F(Gradients, OfCrossEntropyHoldAcrossShardsAndPadding) {
    const std::int64_t rows = 3;
    const VocabularyShard shards[] = {{0, 4}, {4, 3}};
    const Tensor logits[] = {maker.random({rows, 4}), maker.random({rows, 4})};
    const Tensor targets = maker.ids({5, 0, 6}, {rows});
    Tensor maximum;
    SoftmaxSums sums;
    const auto losses = [&] {
        std::vector<double> most(rows, -1e300);
        for (int s = 0; s < 2; ++s) {
            const auto part = read(row_maximum(logits[s], shards[s]));
            for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], part[i]);
        }
        maximum = make(device, {rows}, Dtype::fp64, most);
        sums = softmax_sums(logits[0], targets, maximum, shards[0]);
        const SoftmaxSums other = softmax_sums(logits[1], targets, maximum, shards[1]);
        add(other.exponentials, sums.exponentials);
        add(other.target, sums.target);
        return token_losses(sums, targets);
    };
    const double d_loss = 0.75;
    const auto loss = [&] {
        double sum = 0;
        for (const double value : read(losses())) sum += d_loss * value;
        return sum;
    };
    for (int s = 0; s < 2; ++s) {
        loss();  // the check before left the sums of a changed logit
        const Tensor gradient = maker.zeros({rows, 4});
        copy(logits[s], gradient);
        cross_entropy_backward(gradient, targets, maximum, sums.exponentials, shards[s], d_loss);
        expect_gradient("logits", logits[s], gradient, loss);
        if (s == 1) {
            EXPECT_EQ(read(gradient)[3], 0) << "padding";
        }
    }
}

TEST_F(Gradients, OfCappedLogitsAreThoseInFrontOfTheCap) {
    const Tensor raw = maker.random({3, 4}), targets = maker.ids({1, 3, 0}, {3});
    const VocabularyShard all{0, 4};
    constexpr double cap = 0.6, d_loss = 0.75;
    Tensor capped, maximum;
    SoftmaxSums sums;
    const auto loss = [&] {
        capped = maker.zeros({3, 4});
        copy(raw, capped);
        soft_cap(capped, cap);
        maximum = row_maximum(capped, all);
        sums = softmax_sums(capped, targets, maximum, all);
        double sum = 0;
        for (const double value : read(token_losses(sums, targets))) sum += d_loss * value;
        return sum;
    };
    loss();
    cross_entropy_backward(capped, targets, maximum, sums.exponentials, all, d_loss, cap);
    const Tensor gradient = capped;
    expect_gradient("raw logits", raw, gradient, loss);
}

// Rank 1 of 2 with a zigzag slice attends to its own and to rank 0's keys; two sequences, grouped heads, another v_dim.
TEST_F(Gradients, OfAttentionAddUpOverRingSteps) {
    const Positions queries = zigzag_positions(12, 2, 2, 1);
    const Positions keys[] = {zigzag_positions(12, 2, 2, 0), queries};
    const Tensor q = maker.random({12, 4, 3}), d_output = maker.random({12, 4, 5});
    const Tensor k[] = {maker.random({12, 2, 3}), maker.random({12, 2, 3})}, v[] = {maker.random({12, 2, 5}), maker.random({12, 2, 5})};
    const double scale = 1.7;
    const auto whole = [&] {
        AttentionResult result = attention(q, k[0], v[0], queries, keys[0], scale);
        merge_attention(result, attention(q, k[1], v[1], queries, keys[1], scale));
        return result;
    };
    const auto loss = [&] { return weigh(whole().output, d_output); };
    const AttentionResult result = whole();
    const Tensor dq = maker.zeros(q.shape());
    for (int step = 0; step < 2; ++step) {
        const auto gradients = attention_backward(d_output, q, k[step], v[step], result, queries, keys[step], scale);
        add(gradients.q, dq);
        expect_gradient("k", k[step], gradients.k, loss);
        expect_gradient("v", v[step], gradients.v, loss);
    }
    expect_gradient("q", q, dq, loss);
}

// More queries than one block and heads that share keys, without context parallelism.
TEST_F(Gradients, OfAttentionHoldOverSeveralBlocks) {
    const Positions positions = zigzag_positions(70, 1, 1, 0);
    const Tensor q = maker.random({70, 2, 2}), k = maker.random({70, 1, 2}), v = maker.random({70, 1, 1}),
                 d_output = maker.random({70, 2, 1});
    for (const double cap : {0.1, 0.5}) {
        const AttentionResult near = attention(q, k, v, positions, positions, 0.8, 0, cap);
        const AttentionGradients capped = attention_backward(d_output, q, k, v, near, positions, positions, 0.8, 0, cap);
        const auto capped_loss = [&] { return weigh(attention(q, k, v, positions, positions, 0.8, 0, cap).output, d_output); };
        expect_gradient("capped q", q, capped.q, capped_loss);
        expect_gradient("capped k", k, capped.k, capped_loss);
        expect_gradient("capped v", v, capped.v, capped_loss);
    }
    const AttentionResult result = attention(q, k, v, positions, positions, 0.8);
    const auto gradients = attention_backward(d_output, q, k, v, result, positions, positions, 0.8);
    const auto loss = [&] { return weigh(attention(q, k, v, positions, positions, 0.8).output, d_output); };
    expect_gradient("q", q, gradients.q, loss);
    expect_gradient("k", k, gradients.k, loss);
    expect_gradient("v", v, gradients.v, loss);
}

TEST_F(Gradients, OfAttentionWithinAWindowAndOfSinksHold) {
    const Positions positions = zigzag_positions(70, 1, 1, 0);
    const Tensor q = maker.random({70, 2, 2}), k = maker.random({70, 1, 2}), v = maker.random({70, 1, 1}),
                 d_output = maker.random({70, 2, 1}), sinks = maker.random({2}), d_sinks = maker.zeros({2});
    const auto whole = [&] {
        AttentionResult result = attention(q, k, v, positions, positions, 0.8, 9);
        add_sinks(result, sinks);
        return result;
    };
    const AttentionResult result = whole();
    const auto gradients = attention_backward(d_output, q, k, v, result, positions, positions, 0.8, 9);
    sinks_gradient(d_output, result, sinks, d_sinks);
    const auto loss = [&] { return weigh(whole().output, d_output); };
    expect_gradient("q", q, gradients.q, loss);
    expect_gradient("k", k, gradients.k, loss);
    expect_gradient("v", v, gradients.v, loss);
    expect_gradient("sinks", sinks, d_sinks, loss);
}

TEST_F(Gradients, OfRotaryTurnBack) {
    const Positions positions = zigzag_positions(8, 2, 2, 1);
    const Tensor x = maker.random({8, 2, 6}), dy = maker.random({8, 2, 6});
    for (const RotaryAngles& angles :
         {RotaryAngles{.base = 100}, {.base = 100, .factor = 3, .offset = 0.2, .by_index = 0.1, .magnitude = 1.5}})
        expect_gradient("x", x, rotary(dy, positions, 4, angles, true), [&] { return weigh(rotary(x, positions, 4, angles, false), dy); });
}

TEST_F(Gradients, OfPackedHeadsLieWhereTheyDo) {
    const PackedHeads heads{4, 2, 4};
    const Positions positions = zigzag_positions(5, 2, 1, 0);
    const RotaryAngles angles{.base = 100, .magnitude = 1.5};
    const Tensor packed = maker.random({10, heads.width()}), d_output = maker.random({10, 4, 4});
    const auto turned = [&] {
        Tensor copied = maker.zeros(packed.shape());
        copy(packed, copied);
        rotary_in_place(copied, heads, positions, 2, angles, false);
        return copied;
    };
    const auto attended = [&](const Tensor& x) { return packed_attention(x, heads, positions, 0.8, 3, 0.9); };
    const Tensor x = turned();
    const Tensor gradient = packed_attention_backward(d_output, x, heads, attended(x), positions, 0.8, 3, 0.9);
    rotary_in_place(gradient, heads, positions, 2, angles, true);
    expect_gradient("packed", packed, gradient, [&] { return weigh(attended(turned()).output, d_output); });
}

TEST_F(Gradients, OfDropoutUseTheSameMask) {
    DropoutPlace place{.probability = 0.4, .seed = 7, .stream = 3, .positions = zigzag_positions(6, 1, 1, 0)};
    const Tensor x = maker.random({6, 5}), residual = maker.random({6, 5}), dy = maker.random({6, 5});
    const auto loss = [&] { return weigh(dropout_add(x, residual, place), dy); };
    expect_gradient("x", x, dropout_backward(dy, place), loss);
    expect_gradient("residual", residual, dy, loss);
    place.probability = 0;
    expect_gradient("x without dropout", x, dropout_backward(dy, place), loss);
}

TEST_F(Gradients, OfGatesGoToRowsAndLogits) {
    const Tensor x = maker.random({4, 5}), logits = maker.random({4, 1}), dy = maker.random({4, 5});
    Tensor d_logits;
    const Tensor dx = gate_rows_backward(dy, x, logits, d_logits);
    expect_gradient("x", x, dx, [&] { return weigh(gate_rows(x, logits), dy); });
    expect_gradient("logits", logits, d_logits, [&] { return weigh(gate_rows(x, logits), dy); });
}

TEST_F(Gradients, OfRoutersGoToTheChosenLogits) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        // No two logits of a row are near a tie, where the choice would jump.
        std::vector<double> ramp;
        for (int i = 0; i < 20; ++i) ramp.push_back((i * 7 % 20) * 0.25 - 2);
        const Tensor logits = make(device, {4, 5}, Dtype::fp64, ramp), d_probabilities = maker.random({4, 2});
        const Tensor d_logits = route_backward(d_probabilities, route(logits, 2, score), score);
        expect_gradient("logits", logits, d_logits, [&] { return weigh(route(logits, 2, score).probabilities, d_probabilities); });
        const Tensor d_plain = route_backward(d_probabilities, route(logits, 2, score, false, {.normalised = false}), score, false);
        expect_gradient("logits, not normalised", logits, d_plain,
                        [&] { return weigh(route(logits, 2, score, false, {.normalised = false}).probabilities, d_probabilities); });
        const Tensor d_balanced = route_backward(d_probabilities, route(logits, 2, score, true), score);
        expect_gradient("logits, balanced", logits, d_balanced,
                        [&] { return weigh(route(logits, 2, score, true).probabilities, d_probabilities); });
    }
    const Tensor logits = maker.random({4, 5}), d_probabilities = maker.random({4, 1});
    expect_gradient("logits of a single sigmoid", logits,
                    route_backward(d_probabilities, route(logits, 1, RouterScore::sigmoid, true), RouterScore::sigmoid),
                    [&] { return weigh(route(logits, 1, RouterScore::sigmoid, true).probabilities, d_probabilities); });
}

TEST_F(Gradients, OfTheAuxiliaryLossAreAdded) {
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const Tensor logits = maker.random({4, 3}), d_logits = maker.zeros({4, 3});
        const Tensor copies = maker.ids({5, 1, 2}, {3});
        const auto loss = [&] { return 3 * auxiliary_loss_of(route(logits, 2, score).scores, score, copies, 4, 2, 0.5); };
        auxiliary_loss_backward(route(logits, 2, score).scores, score, copies, 4, 2, 0.5, 3, d_logits);
        expect_gradient("logits", logits, d_logits, loss);
        auxiliary_loss_backward(route(logits, 2, score).scores, score, copies, 4, 2, 0.5, 3, d_logits);
        scale(d_logits, 0.5);
        expect_gradient("logits, twice", logits, d_logits, loss);
    }
}

TEST_F(Gradients, OfPermutationsAreTheWayBack) {
    const Tensor experts = maker.ids({2, 0, 0, -1, 1, 2}, {3, 2});
    const Permutation permutation = sort_by_expert(experts, count_by_expert(experts, 3), 5);
    const Tensor x = maker.random({3, 4}), dy = maker.random({5, 4});
    expect_gradient("x", x, unpermute_rows(dy, permutation, 3, 2), [&] { return weigh(permute_rows(x, permutation, 2), dy); });
    const Tensor copies = maker.random({5, 4}), d_rows = maker.random({3, 4});
    expect_gradient("copies", copies, permute_rows(d_rows, permutation, 2),
                    [&] { return weigh(unpermute_rows(copies, permutation, 3, 2), d_rows); });
    const Tensor p = maker.random({3, 2}), dp = maker.random({5});
    expect_gradient("probabilities", p, unpermute_probabilities(dp, permutation, 3, 2),
                    [&] { return weigh(permute_probabilities(p, permutation), dp); });
}

}  // namespace
}  // namespace mgplan::model::gradients_test
