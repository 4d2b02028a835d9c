#include "model/layers/mtp.hpp"

#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model::mtp_test {
namespace {

/// Two depths behind a rotary model.
struct Further {
    explicit Further(const ModelSpec& spec, bool recompute_all = false) : model(spec) {
        Layout layout;
        layout.sizes = {1, 1, 1, 1, 1, 1, AxisOrder{}, 1};
        layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, model.mtp_layers, 1, 1).value());
        parameters = stage_parameters(model, layout, 0).at(0);
        std::erase_if(parameters, [](const Parameter& parameter) { return parameter.name.starts_with("decoder."); });
        weights = rank.weights_for(parameters);
        mtp.emplace(model, typed_layer(model, model.layers), weights, model.mtp_layers, weights.at("output_layer.weight"),
                    EnumSet<RecomputeModule>{}, recompute_all);
        rank.context.losses = rank.maker.zeros({3}, Dtype::fp64);
        x = rank.maker.random({10, 8});
        // Two sequences of five; row = place · 2 + sequence.
        targets = rank.maker.ids({3, 1, 4, 1, 5, 9, 2, 6, 5, 10}, {10});
        rank.microbatch.mtp_targets = {rank.maker.ids({4, 1, 5, 9, 2, 6, 5, 10, -1, -1}, {10}),
                                       rank.maker.ids({5, 9, 2, 6, 5, 10, -1, -1, -1, -1}, {10})};
    }

    /// With a gradient of 1/10 for every row's main loss: factor / 2 · the mean over 4 and 3 places of both sequences.
    double loss() {
        rank.context.losses = rank.maker.zeros({3}, Dtype::fp64);
        std::vector<MtpDepthSaved> saved;
        mtp->forward(rank.context, rank.microbatch, x, targets, saved, {});
        const std::vector<double> losses = further_losses();
        return model.mtp_loss_factor / 2 * (losses[0] / 8 + losses[1] / 6);
    }
    Tensor backward() {
        std::vector<MtpDepthSaved> saved;
        mtp->forward(rank.context, rank.microbatch, x, targets, saved, {});
        return mtp->backward(rank.context, rank.microbatch, targets, 0.1, saved, {});
    }

    ModelSpec model;
    OneRank rank;
    std::vector<Parameter> parameters;
    WeightTable weights;
    std::optional<Mtp> mtp;
    /// By depth; nothing of the model's own is among them.
    std::vector<double> further_losses() const {
        const std::vector<double> sums = read(rank.context.losses);
        EXPECT_EQ(sums[0], 0);
        return {sums.begin() + 1, sums.end()};
    }
    Tensor x, targets;
};

ModelSpec further_model() {
    ModelSpec model = layer_model();
    model.position = PositionEmbedding::rope;
    model.mtp_layers = 2;
    model.mtp_loss_factor = 3;
    return model;
}

TEST(Mtp, GradientsHoldForEveryWeightAndTheState) {
    for (const auto normalization : {Normalization::layer_norm, Normalization::rms_norm}) {
        for (const bool recompute_all : {false, true}) {
            ModelSpec model = further_model();
            model.normalization = normalization;
            model.hidden_dropout = recompute_all ? 0.3 : 0;
            Further further(model, recompute_all);
            expect_layer_gradients({[&] { return further.loss(); }, [&] { return further.backward(); }, further.x}, further.parameters,
                                   further.weights);
        }
    }
}

TEST(Mtp, RecomputeKeepsTheTwoInputsOfEachDepthAlone) {
    const auto kept = [](bool recompute_all) {
        Further further(further_model(), recompute_all);
        std::vector<MtpDepthSaved> saved;
        further.mtp->forward(further.rank.context, further.rank.microbatch, further.x, further.targets, saved, {});
        EXPECT_EQ(saved[0].inner.has_value(), !recompute_all);
        EXPECT_TRUE(saved[1].embedded.defined() && saved[1].state.defined());
        return further.rank.device.memory().current[static_cast<std::size_t>(MemoryCategory::activations)];
    };
    EXPECT_LT(kept(true), kept(false));
    Further plain(further_model()), again(further_model(), true);
    EXPECT_EQ(read(again.backward()), read(plain.backward()));
}

}  // namespace
}  // namespace mgplan::model::mtp_test
