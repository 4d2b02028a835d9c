#include "plan/parameters/composed_layer.hpp"

#include <gtest/gtest.h>

#include "tests/support/small_models.hpp"

namespace mgplan::composed_layer_test {
namespace {

NamedLayer kind_of(Mixer mixer) {
    NamedLayer kind{"kind", {}};
    kind.layer.mixer = std::move(mixer);
    return kind;
}

/// True if layers of this mixer alone are computed.
bool computes(Mixer mixer) {
    ModelSpec model = tests::llama_of("made up", {.layers = 1, .hidden = 64, .ffn = 128, .heads = 4, .head_dim = 16});
    model.kinds = {kind_of(std::move(mixer))};
    model.kind_of_layer = {0};
    return is_computed(model);
}

TEST(ComposedLayer, SizesThatNoLayerHasAreNotComputed) {
    Mamba2 mamba2{.inner_width = 128, .heads = 4, .groups = 2, .state_size = 16, .conv_taps = 4};
    EXPECT_TRUE(computes(mamba2));
    mamba2.groups = 3;
    EXPECT_FALSE(computes(mamba2)) << "groups that do not divide heads";
    Attention attention{.heads = 4, .kv_heads = 2, .head_dim = 16};
    EXPECT_TRUE(computes(attention));
    attention.kv_heads = 3;
    EXPECT_FALSE(computes(attention));
    GatedDeltaNet net{.key_heads = 2, .key_dim = 8, .value_heads = 4, .value_dim = 8, .conv_taps = 4};
    EXPECT_TRUE(computes(net));
    net.value_heads = 3;
    EXPECT_FALSE(computes(net));
}

TEST(ComposedLayer, KindsThatAreCountedAreNotComputed) {
    ModelSpec model = tests::llama_of("made up", {.layers = 1, .hidden = 64, .ffn = 128, .heads = 4, .head_dim = 16});
    model.kinds = {{"odd", {}}};
    model.kinds.front().layer.counted = {{"weight", {64, 64}}};
    model.kind_of_layer = {0};
    EXPECT_FALSE(is_computed(model));
    EXPECT_FALSE(has_computed_kinds(model));
}

TEST(ComposedLayer, PublishedSetsOfRecomputedModulesComeFirst) {
    ModelSpec model;
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::core_attn});
    model.kinds = {kind_of(Attention{}), kind_of(CompressedAttention{})};
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj});
    EXPECT_EQ(published_recompute_sets(model).size(), 3U);
}

}  // namespace
}  // namespace mgplan::composed_layer_test
