#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <gtest/gtest.h>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/model_adapter.hpp"

namespace mgplan::composed_layer_test {
namespace {

const LayerPart kMamba{"mamba2", {{"inner", 128}, {"heads", 4}, {"groups", 2}, {"state", 16}, {"conv", 4}}};
const LayerPart kMlp{"mlp", {{"width", 128}, {"activation", 2}}};
const LayerPart kExperts{"experts", {{"experts", 4}, {"top_k", 2}, {"width", 32}, {"activation", 2}}};
const LayerPart kShared{"mlp", {{"width", 48}}};

LayerPart norm(std::int64_t copies) {
    return {"norm", {{"width", 64}, {"copies", copies}}};
}

LayerPart with(LayerPart part, const std::string& size, std::int64_t value) {
    part.sizes[size] = value;
    return part;
}

/// A model of one kind of layer whose experts, where it has them, come with shared ones.
bool computes(std::vector<LayerPart> parts, std::vector<LayerPart> outside = {norm(1)}) {
    ModelSpec model;
    model.hidden = 64;
    model.layers = 1;
    model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 32, .shared_ffn = 48};
    model.compositions = {{"kind", std::move(parts)}};
    model.composition_of_layer = {0};
    model.beside_layers = std::move(outside);
    return is_computed(model);
}

template <class... Kinds>
std::vector<std::string_view> names_of(std::variant<Kinds...>* /*type*/) {
    return {Kinds::kKind...};
}

TEST(ComposedLayer, MixersAreTheTypedKinds) {
    const auto mixers = names_of(static_cast<Mixer*>(nullptr));
    std::size_t halves = 0;
    for (const PartKind* kind : part_kinds()) {
        const bool mixes = std::find(mixers.begin(), mixers.end(), kind->name) != mixers.end();
        EXPECT_EQ(mixes, kind->traits.role == PartRole::mixer) << kind->name;
        halves += mixes ? 1 : 0;
    }
    EXPECT_EQ(halves, mixers.size());
}

TEST(ComposedLayer, ComeBackFromTheTypedLayerThatTheyState) {
    EXPECT_TRUE(computes({norm(2), kMamba, kMlp}));
    EXPECT_TRUE(computes({norm(1), kMamba}));
    EXPECT_TRUE(computes({norm(2), kMamba, kExperts, kShared}));
    EXPECT_FALSE(computes({norm(1), kMamba, kMlp})) << "a half without its norm";
    EXPECT_FALSE(computes({norm(2), kMlp, kMamba})) << "halves in another order";
    EXPECT_FALSE(computes({norm(2), kMamba, kMlp, kMlp})) << "a second MLP";
    EXPECT_FALSE(computes({norm(2), kMamba, kExperts})) << "experts without the shared ones";
    EXPECT_FALSE(computes({norm(2), kMamba, with(kExperts, "top_k", 1), kShared})) << "another number than the model's";
    EXPECT_FALSE(computes({norm(2), kMamba, with(kExperts, "zero_experts", 2), kShared})) << "what typed experts cannot say";
    EXPECT_FALSE(computes({norm(2), with(kMamba, "proj_bias", 1), kMlp})) << "what typed Mamba-2 cannot say";
    EXPECT_FALSE(computes({norm(2), kMamba, with(kMlp, "activation", 0)})) << "no activation stated";
    EXPECT_FALSE(computes({with(norm(2), "bias", 1), kMamba, kMlp})) << "norms of another form than the model's";
}

TEST(ComposedLayer, OutsideTheLayersAreWhatLayersRead) {
    const LayerPart block{"shared_block", {{"query_heads", 4}, {"kv_heads", 4}, {"head_dim", 32}, {"width", 96}}};
    LayerPart reader = kMamba;
    reader.kind = "shared_block_mamba2";
    reader.sizes.insert(block.sizes.begin(), block.sizes.end());
    reader.sizes["activation"] = 2;
    EXPECT_TRUE(computes({norm(1), reader}, {block, norm(1)}));
    EXPECT_FALSE(computes({norm(1), reader})) << "no such block";
    EXPECT_FALSE(computes({norm(1), reader}, {with(block, "width", 97), norm(1)})) << "a block of other sizes";
    EXPECT_FALSE(computes({norm(1), with(reader, "block", 1)}, {block, norm(1)})) << "the second block of one";
    EXPECT_TRUE(computes({norm(1), with(reader, "block", 1)}, {block, block, norm(1)}));
    EXPECT_FALSE(computes({norm(1), with(reader, "block", 1)}, {block, with(block, "width", 97), norm(1)})) << "the sizes of the first";
    EXPECT_TRUE(computes({norm(1), kMamba}, {block, norm(1)})) << "one layer of a model, of which others read the block";
    EXPECT_FALSE(computes({norm(1), kMamba}, {kMlp, norm(1)})) << "what no layer reads";
    EXPECT_FALSE(computes({norm(1), kMamba}, {})) << "no final norm";
}

TEST(ComposedLayer, PublishedSetsOfRecomputedModulesComeFirst) {
    ModelSpec model;
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::core_attn});
    model.compositions = {{"attention", {{"attention", {}}}}, {"compressed", {{"compressed_attention", {}}}}};
    EXPECT_EQ(usual_recompute_modules(model), EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj});
    EXPECT_EQ(published_recompute_sets(model).size(), 3U);
}

}  // namespace
}  // namespace mgplan::composed_layer_test
