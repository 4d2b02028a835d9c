#include "model/layers/residual.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "model/layers/mlp.hpp"
#include "model/layers/self_attention.hpp"
#include "tests/model/layers/support.hpp"

namespace mgplan::model::residual_test {
namespace {

ResidualPath dropping(double probability, std::int64_t layer, ResidualPlace place) {
    Residual residual;
    residual.dropout = probability;
    return {residual, true, layer, place};
}

TEST(Residual, GradientsHoldWithAndWithoutDropout) {
    for (const double probability : {0.0, 0.4}) {
        const ResidualPath path = dropping(probability, 1, ResidualPlace::mlp);
        OneRank rank;
        const Tensor x = rank.maker.random({10, 8}), residual = rank.maker.random({10, 8}), dy = rank.maker.random({10, 8});
        const auto loss = [&] { return weigh(path.sum(rank.context, rank.microbatch, x, residual), dy); };
        expect_gradient("x", x, path.backward(rank.context, rank.microbatch, dy), loss);
        expect_gradient("residual", residual, dy, loss);
    }
}

/// Which values of a stream of ones survive, and with what factor.
std::vector<double> mask(OneRank& rank, double probability, std::int64_t layer, ResidualPlace place, std::int64_t width) {
    const std::int64_t rows = positions_of(rank.context, rank.microbatch).rows();
    const Tensor ones = make(rank.device, {rows, width}, Dtype::fp64, std::vector<double>(static_cast<std::size_t>(rows * width), 1.0));
    return read(dropping(probability, layer, place).backward(rank.context, rank.microbatch, ones));
}

TEST(Residual, KeepsTheFractionItShould) {
    for (const double probability : {0.1, 0.5, 0.9}) {
        OneRank rank;
        rank.microbatch.sequence = 100;
        const auto values = mask(rank, probability, 0, ResidualPlace::attention, 500);
        ASSERT_EQ(values.size(), 100'000U);
        double kept = 0;
        for (const double value : values) {
            if (value == 0) continue;
            EXPECT_NEAR(value, 1 / (1 - probability), 1e-12);
            ++kept;
        }
        // Five standard deviations of the binomial distribution.
        EXPECT_NEAR(kept / 1e5, 1 - probability, 5 * std::sqrt(probability * (1 - probability) / 1e5));
    }
}

TEST(Residual, DrawsAnewForEveryLayerPlaceSequenceAndStep) {
    OneRank rank;
    const auto first = mask(rank, 0.5, 0, ResidualPlace::attention, 16);
    EXPECT_EQ(mask(rank, 0.5, 0, ResidualPlace::attention, 16), first) << "and nothing else";
    EXPECT_NE(mask(rank, 0.5, 1, ResidualPlace::attention, 16), first);
    EXPECT_NE(mask(rank, 0.5, 0, ResidualPlace::mlp, 16), first);
    EXPECT_NE(mask(rank, 0.5, 0, ResidualPlace::embedding, 16), first);
    rank.microbatch.first_sequence += 2;
    EXPECT_NE(mask(rank, 0.5, 0, ResidualPlace::attention, 16), first);
    rank.microbatch.first_sequence -= 2;
    ++rank.microbatch.dropout_seed;
    EXPECT_NE(mask(rank, 0.5, 0, ResidualPlace::attention, 16), first);
}

// The same sequence in another microbatch, beside other sequences: its rows of the mask stay.
TEST(Residual, MasksFollowTheSequenceNotTheMicrobatch) {
    OneRank rank;  // sequences 3 and 4
    const auto both = mask(rank, 0.5, 0, ResidualPlace::mlp, 8);
    rank.microbatch.batch = 1;
    rank.microbatch.first_sequence = 4;
    const auto alone = mask(rank, 0.5, 0, ResidualPlace::mlp, 8);
    for (std::size_t place = 0; place < 5; ++place) {
        for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(alone[place * 8 + i], both[(place * 2 + 1) * 8 + i]);
    }
}

/// Counts the sums that are ops of their own.
struct SumCounter final : OpListener {
    void on_op(const OpRecord& record) override { sums += record.name == "add" ? 1 : 0; }
    int sums = 0;
};

struct Backwards {
    std::vector<std::vector<double>> gradients;
    int sums = 0;
};

/// Gradients of both halves' inputs and of their weights; `in_norms`: the path is added by norms' backwards.
Backwards backwards(const ModelSpec& model, bool in_norms) {
    OneRank rank;
    rank.context.adds_path_in_norms = in_norms;
    const auto parameters = layer_parameters(model, LayerKind::dense, 1, 1, 1, "");
    const WeightTable weights = rank.weights_for(parameters);
    const auto attention = first_half<SelfAttention>(alone(model, weights));
    const auto mlp = second_half<Mlp>(alone(model, weights));
    const Tensor x = rank.maker.random({10, model.hidden}), dy = rank.maker.random({10, model.hidden});
    SelfAttentionSaved attended;
    MlpSaved transformed;
    (void)attention.forward(rank.context, rank.microbatch, x, attended);
    (void)mlp.forward(rank.context, rank.microbatch, x, x, transformed);
    SumCounter counter;
    rank.device.set_listener(&counter);
    Backwards result;
    result.gradients = {read(attention.backward(rank.context, rank.microbatch, dy, attended)),
                        read(mlp.backward(rank.context, rank.microbatch, dy, transformed))};
    rank.device.set_listener(nullptr);
    for (const Parameter& parameter : parameters) result.gradients.push_back(read(weights.at(parameter.name).gradient));
    result.sums = counter.sums;
    return result;
}

TEST(Residual, GradientsOfThePathAreAddedByNormsWithTheSameBits) {
    ModelSpec normed = layer_model(), bare = layer_model(), beside = layer_model(), dropped = layer_model();
    dropped.hidden_dropout = 0.3;
    normed.normed_residual = NormedResidual{};
    bare.pre_norms = false;
    beside.order = LayerOrder::parallel;
    const struct {
        ModelSpec model;
        int sums, sums_in_norms;
    } cases[] = {{layer_model(), 2, 0}, {dropped, 2, 0}, {normed, 2, 2}, {bare, 2, 2}, {beside, 1, 0}};
    for (const auto& [model, sums, sums_in_norms] : cases) {
        const Backwards behind = backwards(model, false), within = backwards(model, true);
        EXPECT_EQ(within.gradients, behind.gradients);
        EXPECT_EQ(behind.sums, sums);
        EXPECT_EQ(within.sums, sums_in_norms);
    }
}

}  // namespace
}  // namespace mgplan::model::residual_test
