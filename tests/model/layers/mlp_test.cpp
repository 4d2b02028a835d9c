#include "model/layers/mlp.hpp"

#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model::mlp_test {
namespace {

void expect_gradients_hold(const ModelSpec& model, EnumSet<RecomputeModule> recompute = {}) {
    OneRank rank;
    auto parameters = layer_parameters(model, LayerKind::dense, 1, 1, 1, "");
    std::erase_if(parameters, [](const Parameter& parameter) { return parameter.name.find("mlp.") == std::string::npos; });
    const WeightTable weights = rank.weights_for(parameters);
    const auto layer = second_half<Mlp>(alone(model, weights, recompute, 1));
    const Tensor x = rank.maker.random({10, model.hidden}), dy = rank.maker.random({10, model.hidden});
    const auto loss = [&] {
        MlpSaved saved;
        return weigh(layer.forward(rank.context, rank.microbatch, x, x, saved), dy);
    };
    const auto backward = [&] {
        MlpSaved saved;
        (void)layer.forward(rank.context, rank.microbatch, x, x, saved);
        return layer.backward(rank.context, rank.microbatch, dy, saved);
    };
    expect_layer_gradients({loss, backward, x}, parameters, weights);
}

TEST(Mlp, GradientsHoldForEveryActivationAndNorm) {
    for (const auto activation : {Activation::gelu, Activation::silu, Activation::squared_relu}) {
        for (const bool gated : {false, true}) {
            for (const auto normalization : {Normalization::layer_norm, Normalization::rms_norm}) {
                ModelSpec model = layer_model();
                model.activation = activation;
                model.gated_mlp = gated;
                model.normalization = normalization;
                model.mlp_bias = normalization == Normalization::layer_norm;
                expect_gradients_hold(model);
            }
        }
    }
}

TEST(Mlp, GradientsHoldWhenPartsAreMadeAgain) {
    using enum RecomputeModule;
    ModelSpec model = layer_model();
    model.hidden_dropout = 0.2;
    for (const EnumSet<RecomputeModule> modules : {EnumSet<RecomputeModule>{mlp}, {layernorm}, {mlp, layernorm}})
        expect_gradients_hold(model, modules);
}

}  // namespace
}  // namespace mgplan::model::mlp_test
