#include "plan/parts/model_parts.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model_parts_test {
namespace {

using testing::HasSubstr;

const LayerPart kMamba{"mamba2",
                       {{"inner", 128}, {"heads", 4}, {"groups", 2}, {"state", 16}, {"conv", 4}, {"conv_bias", 1}, {"proj_bias", 0}}};
const LayerPart kMlp{"mlp", {{"width", 128}, {"gated", 1}, {"bias", 0}, {"activation", 2}}};
const LayerPart kExperts{"experts", {{"experts", 4}, {"top_k", 2}, {"width", 32}, {"gated", 1}, {"activation", 2}}};
const LayerPart kShared{"mlp", {{"width", 48}, {"gated", 1}, {"bias", 0}}};

LayerPart norm(std::int64_t copies) {
    return {"norm", {{"width", 64}, {"copies", copies}}};
}

LayerPart with(LayerPart part, const std::string& size, std::int64_t value) {
    part.sizes[size] = value;
    return part;
}

/// A model without layers, whose experts come with shared ones.
ModelSpec model_of_fields() {
    ModelSpec model =
        tests::llama_of("made up", {.layers = 1, .hidden = 64, .ffn = 128, .heads = 4, .head_dim = 16, .vocab = 256, .max_positions = 128});
    model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 32, .shared_ffn = 48};
    model.moe_layers = {true};
    return model;
}

/// A model of one kind of layer.
ModelSpec model_of(std::vector<LayerPart> parts, std::vector<LayerPart> outside = {norm(1)}, ModelSpec model = model_of_fields()) {
    set_layers(model, {{{"kind", std::move(parts)}}, {0}, {}, std::move(outside)}, "model");
    return model;
}

std::string refusal(std::vector<LayerPart> parts, const ModelSpec& model = model_of_fields(), std::vector<LayerPart> outside = {norm(1)}) {
    try {
        (void)model_of(std::move(parts), std::move(outside), model);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

/// True if layers here compute the model; false if it is refused.
bool computes(const std::vector<LayerPart>& parts, const std::vector<LayerPart>& outside = {norm(1)},
              const ModelSpec& model = model_of_fields()) {
    return refusal(parts, model, outside) == "accepted" && is_computed(model_of(parts, outside, model));
}

template <class... Kinds>
std::vector<std::string_view> names_of(std::variant<Kinds...>* /*type*/) {
    return {Kinds::kKind...};
}

TEST(ModelParts, MixersAreTheTypedKinds) {
    const auto mixers = names_of(static_cast<Mixer*>(nullptr));
    std::size_t halves = 0;
    for (const PartKind& kind : part_kinds()) {
        const bool mixes = std::find(mixers.begin(), mixers.end(), kind.name) != mixers.end();
        EXPECT_EQ(mixes, kind.role == PartRole::mixer) << kind.name;
        halves += mixes ? 1 : 0;
    }
    EXPECT_EQ(halves, mixers.size());
}

TEST(ModelParts, ComeBackFromTheTypedLayerThatTheyState) {
    EXPECT_TRUE(computes({norm(2), kMamba, kMlp}));
    EXPECT_TRUE(computes({norm(1), kMamba}));
    EXPECT_TRUE(computes({norm(2), kMamba, kExperts, kShared}));
    EXPECT_FALSE(computes({norm(1), kMamba, kMlp})) << "a half without its norm";
    EXPECT_FALSE(computes({norm(2), kMlp, kMamba})) << "halves in another order";
    EXPECT_FALSE(computes({norm(2), kMamba, kMlp, kMlp})) << "a second MLP";
    EXPECT_FALSE(computes({norm(2), kMamba, kExperts})) << "experts without the shared ones";
    EXPECT_FALSE(computes({norm(2), kMamba, with(kExperts, "top_k", 1), kShared})) << "another number than the model's";
    EXPECT_FALSE(computes({norm(2), with(kMamba, "proj_bias", 1), kMlp})) << "what typed Mamba-2 cannot say";
    EXPECT_FALSE(computes({norm(2), kMamba, with(kMlp, "activation", 0)})) << "no activation stated";
    EXPECT_FALSE(computes({with(norm(2), "bias", 1), kMamba, kMlp})) << "norms of another form than the model's";
}

TEST(ModelParts, OutsideTheLayersAreWhatLayersRead) {
    const LayerPart block{"shared_block", {{"query_heads", 4}, {"kv_heads", 4}, {"head_dim", 32}, {"width", 96}}};
    LayerPart reader = kMamba;
    reader.kind = "shared_block_mamba2";
    reader.sizes.insert(block.sizes.begin(), block.sizes.end());
    reader.sizes["activation"] = 2;
    EXPECT_TRUE(computes({norm(1), reader}, {block, norm(1)}));
    EXPECT_FALSE(computes({norm(1), reader})) << "no such block";
    EXPECT_FALSE(computes({norm(1), reader}, {with(block, "width", 97), norm(1)})) << "a block of other sizes";
    EXPECT_FALSE(computes({norm(1), reader}, {block, block, norm(1)})) << "a block that no layer reads";
    EXPECT_FALSE(computes({norm(1), kMamba}, {block, norm(1)})) << "a block that no layer reads";
    EXPECT_FALSE(computes({norm(1), kMamba}, {kMlp, norm(1)})) << "what no layer reads";
    EXPECT_FALSE(computes({norm(1), kMamba}, {})) << "no final norm";
}

TEST(ModelParts, OfATypedLayerAreThoseThatItWasReadFrom) {
    const LayerPart attention{"attention", {{"heads", 4}, {"kv_heads", 4}, {"head_dim", 16}, {"positions", 1}}};
    LayerPart gated = attention;
    gated.sizes.insert({{"qkv_bias", 0}, {"output_bias", 0}, {"output_gate", 1}, {"qk_norm", 1}});
    for (const std::vector<LayerPart>& parts : {std::vector<LayerPart>{norm(2), kMamba, kMlp},
                                                {norm(1), kMamba},
                                                {norm(1), with(kMamba, "norm", 0)},
                                                {norm(2), attention, kExperts, kShared},
                                                {with(norm(2), "behind", 1), gated, kMlp}}) {
        const ModelSpec model = model_of(parts);
        ASSERT_TRUE(is_computed(model));
        EXPECT_EQ(composition_of(typed_layer(model, 0), model.hidden).parts, parts);
    }
}

TEST(ModelParts, ThatNoTypedLayerHasAreRefused) {
    const std::vector<LayerPart> biased{norm(2), with(kMamba, "proj_bias", 1), kMlp};
    EXPECT_THAT(refusal(biased), HasSubstr("layers of kind 'kind' have parts that no layer here has together, or other sizes"));
    EXPECT_TRUE(computes({norm(1), {"short_convolution", {{"conv", 3}}}}));
    EXPECT_FALSE(computes({norm(1), {"short_convolution", {{"conv", 3}, {"bias", 1}}}})) << "typed ones have no bias";
    EXPECT_THAT(refusal({norm(2), kMamba, kMlp}, model_of_fields(), {kMlp, norm(1)}), HasSubstr("beside_layers is not what these kinds"));
}

TEST(ModelParts, StandBesideLayersThatAreCounted) {
    const CountedTensor weight{"mixer.weight", {128, 64}};
    const auto model_with = [&](const std::vector<LayerPart>& outside) {
        ModelSpec model = model_of_fields();
        model.layers = 2;
        model.moe.reset();
        model.moe_layers.clear();
        model.counted = {{"norm.weight", {64}}};
        set_layers(model, {{{"typed", {norm(2), kMamba, kMlp}}, {"counted", {}, {weight}}}, {0, 1}, {}, outside}, "model");
        return model;
    };
    const ModelSpec model = model_with({});
    EXPECT_TRUE(model.kinds[0].layer.mixer);
    EXPECT_EQ(model.kinds[1].layer.counted, std::vector<CountedTensor>{weight});
    EXPECT_FALSE(is_computed(model));
    EXPECT_THROW((void)model_with({norm(1)}), ConfigError) << "the final norm is counted";
}

TEST(ModelParts, OfLatentAttentionAgreeWithTheFields) {
    const LayerPart latent{"latent_attention", {{"heads", 4}, {"kv_lora_rank", 10}, {"qk_nope", 8}, {"qk_rope", 4}, {"v_head_dim", 6}}};
    ModelSpec model = model_of_fields();
    model.mla = MlaSpec{.kv_lora_rank = 10, .qk_nope_head_dim = 8, .qk_rope_head_dim = 4, .v_head_dim = 6};
    EXPECT_TRUE(computes({norm(2), latent, kMlp}, {norm(1)}, model));
    model.mla->v_head_dim = 7;
    EXPECT_FALSE(computes({norm(2), latent, kMlp}, {norm(1)}, model));
    model.mla.reset();
    EXPECT_FALSE(computes({norm(2), latent, kMlp}, {norm(1)}, model));
}

TEST(ModelParts, WrongOnesAreRefusedTogetherWithTheModel) {
    EXPECT_THAT(refusal({}), HasSubstr("layers of kind 'kind' have neither parts nor counted tensors; give either"));
    EXPECT_THAT(refusal({{"mamba3", {}}}), HasSubstr("model: layers of kind 'kind': part 'mamba3' is not known"));
    ModelSpec model = model_of_fields();
    model.residual_multiplier = 0;
    EXPECT_THAT(refusal({norm(1), with(kMamba, "heads", 0)}, model),
                testing::AllOf(HasSubstr("heads of part 'mamba2' = 0 is out of range"), HasSubstr("multiplier of additions")));
    model = model_of_fields();
    model.hyper_connections.emplace();
    EXPECT_THAT(refusal({norm(2), kMamba, kMlp}, model), HasSubstr("parts that no layer here has together"));
}

}  // namespace
}  // namespace mgplan::model_parts_test
