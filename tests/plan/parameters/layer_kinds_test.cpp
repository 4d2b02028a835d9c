#include "plan/parameters/layer_kinds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::layer_kinds_test {
namespace {

using testing::ElementsAre;

ModelSpec model_of_fields(std::int64_t layers) {
    return tests::llama_of("made up",
                           {.layers = layers, .hidden = 64, .ffn = 128, .heads = 4, .head_dim = 16, .vocab = 256, .max_positions = 128});
}

const Mamba2 kMamba{.inner_width = 128, .heads = 4, .groups = 2, .state_size = 16, .conv_taps = 4};
const Attention kAttention{.heads = 4, .kv_heads = 4, .head_dim = 16};
const Mlp kMlp{.width = 128};
const Mixture kExperts;

NamedLayer kind(const std::string& name, std::optional<Mixer> mixer, std::optional<FeedForward> feed_forward = {}) {
    NamedLayer kind{name, {}};
    kind.layer.mixer = std::move(mixer);
    kind.layer.feed_forward = feed_forward;
    return kind;
}

ModelSpec model_of_kinds(std::vector<NamedLayer> kinds, std::vector<std::uint16_t> layers) {
    ModelSpec model = model_of_fields(std::ssize(layers));
    model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 32};
    for (const std::uint16_t number : layers) model.moe_layers.push_back(feed_forward_as<Mixture>(kinds[number].layer) != nullptr);
    model.kinds = std::move(kinds);
    model.kind_of_layer = std::move(layers);
    return model;
}

TEST(LayerKinds, OfFieldsAreAttentionWithAnMlpOrExpertsAndAWindowOrNone) {
    ModelSpec model = model_of_fields(4);
    model.moe.emplace();
    model.moe_layers = {false, true, true, true};
    model.sliding_window = 8;
    model.full_attention_every = 2;
    const LayerKinds kinds = layer_kinds(model);
    EXPECT_EQ(kinds.mixers.size(), 1U);
    EXPECT_EQ(kinds.mixture(), 1);
    EXPECT_THAT(kinds.kinds,
                ElementsAre(LayerKindHalves{0, 0, true, false}, LayerKindHalves{0, 1, false, true}, LayerKindHalves{0, 1, true, true}));
    EXPECT_THAT(kinds.of_layer, ElementsAre(0, 1, 2, 1));
    EXPECT_THAT(kinds.without_window, ElementsAre(0, 1, 1)) << "a window changes no parameter and no tensor";
    EXPECT_THAT(kinds.first_layer, ElementsAre(0, 1, 2));
    EXPECT_FALSE(kinds.mixers.front().layer.feed_forward);
    ASSERT_EQ(kinds.feed_forwards.size(), 2U);
    EXPECT_TRUE(feed_forward_as<Mlp>(kinds.feed_forwards[0].layer));
    EXPECT_TRUE(feed_forward_as<Mixture>(kinds.feed_forwards[1].layer));
    EXPECT_FALSE(kinds.feed_forwards[1].layer.mixer);
}

TEST(LayerKinds, TellFirstAndLastLayersInBf16Apart) {
    ModelSpec model = model_of_fields(5);
    model.mtp_layers = 1;
    MegatronSwitches switches;
    switches.bf16_layers_at_start = 1;
    switches.bf16_layers_at_end = 2;
    const LayerKinds kinds = layer_kinds(model, switches);
    ASSERT_EQ(kinds.size(), 2U);
    EXPECT_THAT(kinds.of_layer, ElementsAre(1, 0, 0, 1, 1));
    EXPECT_FALSE(kinds.kinds[0].in_bf16);
    EXPECT_TRUE(kinds.kinds[1].in_bf16);
    EXPECT_THAT(kinds.without_window, ElementsAre(0, 1)) << "they hold other bytes";
    EXPECT_EQ(kinds.of_prediction, 0) << "which has no number";
    ASSERT_EQ(kinds.mixers.size(), 2U);
    ASSERT_EQ(kinds.feed_forwards.size(), 2U);
    for (const int kind : {0, 1}) {
        const LayerKindHalves& halves = kinds.kinds[static_cast<std::size_t>(kind)];
        const LayerPrecision precision = kind == 0 ? LayerPrecision::of_training : LayerPrecision::bf16;
        EXPECT_EQ(kinds.mixers[static_cast<std::size_t>(halves.mixer)].layer.precision, precision);
        EXPECT_EQ(kinds.feed_forwards[static_cast<std::size_t>(halves.feed_forward)].layer.precision, precision);
    }
    EXPECT_EQ(kinds.mixture(), LayerKindHalves::kNone);
    switches.bf16_layers_at_start = 5;
    EXPECT_THAT(layer_kinds(model, switches).of_layer, testing::Each(1)) << "all, but for the prediction's";
}

TEST(LayerKinds, APredictionsKindIsThatOfTheLayerBehindTheLast) {
    ModelSpec model = model_of_fields(3);
    model.mtp_layers = 1;
    EXPECT_EQ(layer_kinds(model).of_prediction, 0);
    model.sliding_window = 8;
    model.full_attention_every = 4;  // the layer behind the third sees all
    const LayerKinds kinds = layer_kinds(model);
    EXPECT_THAT(kinds.of_layer, ElementsAre(1, 1, 1));
    EXPECT_EQ(kinds.of_prediction, 0);
    EXPECT_EQ(kinds.first_layer[0], 3) << "the prediction itself";
}

TEST(LayerKinds, OfKindsAreTheirHalvesEachRecordedOnce) {
    const ModelSpec model = model_of_kinds(
        {kind("mamba2", kMamba), kind("mamba2+mlp", kMamba, kMlp), kind("attention+moe", kAttention, kExperts), kind("moe", {}, kExperts)},
        {0, 1, 2, 3, 0});
    const LayerKinds kinds = layer_kinds(model);
    EXPECT_EQ(kinds.mixers.size(), 2U);
    EXPECT_TRUE(kinds.mixers[0].carries_state);
    EXPECT_FALSE(kinds.mixers[1].carries_state);
    EXPECT_EQ(kinds.mixture(), 1);
    constexpr int kNone = LayerKindHalves::kNone;
    EXPECT_THAT(kinds.kinds, testing::UnorderedElementsAre(LayerKindHalves{0, kNone, false, false}, LayerKindHalves{0, 0, false, false},
                                                           LayerKindHalves{1, 1, false, true}, LayerKindHalves{kNone, 1, false, true}));
    EXPECT_EQ(kinds.of_layer.front(), kinds.of_layer.back());
    EXPECT_TRUE(mixer_as<Mamba2>(kinds.mixers[0].layer));
    EXPECT_TRUE(mixer_as<Attention>(kinds.mixers[1].layer));
    for (const LayerHalf& mixer : kinds.mixers) EXPECT_FALSE(mixer.layer.feed_forward);
    ASSERT_EQ(kinds.feed_forwards.size(), 2U);
    EXPECT_TRUE(feed_forward_as<Mlp>(kinds.feed_forwards[0].layer));
    EXPECT_TRUE(feed_forward_as<Mixture>(kinds.feed_forwards[1].layer));
    for (const LayerHalf& half : kinds.feed_forwards) EXPECT_FALSE(half.layer.mixer);
}

TEST(LayerKinds, OneKindOfMixtureHasAPrice) {
    const ModelSpec model = model_of_kinds({kind("moe", {}, kExperts), kind("other", {}, Mixture{.activation = Activation::gelu})}, {0, 1});
    try {
        (void)layer_kinds(model);
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("layers with experts of two kinds"));
    }
}

}  // namespace
}  // namespace mgplan::layer_kinds_test
