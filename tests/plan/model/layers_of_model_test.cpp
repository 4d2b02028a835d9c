#include "plan/model/layers_of_model.hpp"

#include <gtest/gtest.h>

namespace mgplan {
namespace {

ModelSpec model_of(Mixer mixer) {
    ModelSpec model;
    model.kinds = {{"kind", {}}};
    model.kinds.front().layer.mixer = std::move(mixer);
    return model;
}

TEST(LayersOfModel, AnswerByTheirMixers) {
    EXPECT_FALSE(has_mixer_with(ModelSpec{}, &MixerTraits::keeps_core)) << "fields describe its layers";
    EXPECT_FALSE(has_mixer_with(model_of(GemmaAttention{}), &MixerTraits::keeps_core));
    ModelSpec both = model_of(GemmaAttention{});
    both.kinds.push_back(model_of(CompressedAttention{}).kinds.front());
    EXPECT_TRUE(has_mixer_with(both, &MixerTraits::keeps_core));
    EXPECT_EQ(traits_of(Mamba2{}).words, "Mamba-2");
}

TEST(LayersOfModel, ShareKeysInputsAndBlocks) {
    EXPECT_FALSE(shares_between_layers(ModelSpec{}));
    EXPECT_FALSE(shares_between_layers(model_of(GemmaAttention{})));
    EXPECT_TRUE(shares_between_layers(model_of(GemmaAttention{.shares_kv = true})));
    EXPECT_TRUE(shares_between_layers(model_of(GemmaAttention{.layer_input_width = 4})));
    EXPECT_TRUE(shares_between_layers(model_of(Gemma3nLayer{.attention = {.shares_kv = true}, .mlp = {}})));
    EXPECT_TRUE(shares_between_layers(model_of(SharedBlockMamba2{})));
    EXPECT_FALSE(shares_between_layers(model_of(Mamba2{})));
}

}  // namespace
}  // namespace mgplan
