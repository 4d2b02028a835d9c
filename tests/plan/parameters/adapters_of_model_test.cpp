#include "plan/parameters/adapters_of_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/json/model_json.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/small_mixtures.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::adapters_of_model_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& text, const ModelSpec& model) {
    try {
        (void)parse_adapters(text, model, "--lora");
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

TEST(Adapters, DefaultsAreThoseOfMegatronBridgeThatTheModelHas) {
    const Adapters dense = parse_adapters("default", tests::small_llama(), "--lora");
    EXPECT_EQ(dense, (Adapters{.experts = false}));
    const Adapters mixture = parse_adapters("rank=16", model::small_mixture(), "--lora");
    EXPECT_EQ(mixture, (Adapters{.rank = 16}));
    const Adapters latent = parse_adapters("alpha=8", model::small_deepseek_v3(), "--lora");
    EXPECT_EQ(latent, (Adapters{.alpha = 8, .qkv = false}));
}

TEST(Adapters, StandBesideTheProjectionsOfMixersWithAState) {
    EXPECT_EQ(parse_adapters("rank=4", model::small::small_nemotron_h(), "--lora"),
              (Adapters{.rank = 4, .experts = false, .in_proj = true, .out_proj = true}));
    EXPECT_FALSE(parse_adapters("default", model::small::small_qwen3_next(), "--lora").in_proj) << "no recipe names it";
    EXPECT_EQ(parse_adapters("targets=in_proj", model::small::small_qwen3_next(), "--lora"),
              (Adapters{.qkv = false, .proj = false, .fc1 = false, .fc2 = false, .experts = false, .in_proj = true}));
    ModelSpec model = model::small::small_mamba2();
    model.adapters = Adapters{.rank = 4, .in_proj = true, .out_proj = true};
    const Model typed = typed_model(model);
    const Mamba2& mixer = *mixer_as<Mamba2>(typed.kinds.front());
    const std::int64_t projected = 2 * mixer.inner_width + 2 * mixer.groups * mixer.state_size + mixer.heads;
    EXPECT_EQ(trained_parameters(model), model.layers * 4 * (model.hidden + projected + mixer.inner_width + model.hidden));
}

TEST(Adapters, TargetsAreThoseNamed) {
    EXPECT_EQ(parse_adapters("rank=4,targets=qkv,proj,alpha=2", tests::small_llama(), "--lora"),
              (Adapters{.rank = 4, .alpha = 2, .fc1 = false, .fc2 = false, .experts = false}));
    EXPECT_THAT(targets_in("qkv,latent,experts,fc1", tests::small_llama()), ElementsAre("qkv", "fc1"));
}

TEST(Adapters, FrozenWeightsMayBeInFourBits) {
    EXPECT_EQ(parse_adapters("base=nf4", tests::small_llama(), "--lora"), (Adapters{.experts = false, .base = FrozenStorage::nf4}));
    EXPECT_EQ(nf4_bytes(64 * 256), 64 * 256 / 2 + 256 + 4) << "4.127 bits a value";
    EXPECT_EQ(nf4_bytes(3), 2 + 1 + 4);
    ModelSpec model = tests::small_llama();
    model.adapters = Adapters{.experts = false, .base = FrozenStorage::nf4};
    TrainingSpec training;
    EXPECT_THAT(adapter_obstacles(model, training, false), ElementsAre());
    EXPECT_THAT(adapter_obstacles(model, training, true), ElementsAre(HasSubstr("frozen weights in nf4 (leave base out)")));
    training.precision = Precision::fp8;
    EXPECT_THAT(adapter_obstacles(model, training, false), ElementsAre(HasSubstr("next to quantised products")));
    model = model::small_mixture();
    model.adapters = Adapters{.base = FrozenStorage::nf4};
    EXPECT_THAT(adapter_obstacles(model, {}, false), ElementsAre(HasSubstr("experts in nf4")));
    EXPECT_EQ(model_from_json(model_to_json(model), "model").adapters, model.adapters);
}

TEST(Adapters, RefusesByNameWithWhatIsPossible) {
    const ModelSpec llama = tests::small_llama();
    EXPECT_THAT(refusal("rank=0", llama), HasSubstr("--lora: rank = '0' is out of range; give a whole number from 1"));
    EXPECT_THAT(refusal("alpha=x", llama), HasSubstr("--lora: alpha = 'x' is out of range"));
    EXPECT_THAT(refusal("dropout=1", llama), HasSubstr("'dropout' is not known; write rank, alpha, targets or base"));
    EXPECT_THAT(refusal("base=int8", llama), HasSubstr("--lora: base = 'int8' is not known; write base=nf4, or leave it out"));
    EXPECT_THAT(refusal("16", llama), HasSubstr("'16' is not known; write rank=16"));
    EXPECT_THAT(refusal("targets=experts", llama), HasSubstr("has no linear layer 'experts'; use qkv, proj, fc1, fc2"));
    EXPECT_THAT(refusal("rank=0,targets=lm_head", llama), testing::AllOf(HasSubstr("rank"), HasSubstr("lm_head")))
        << "all problems together";
}

TEST(Adapters, PairsStandBehindTheirLayersAndAllElseIsFrozen) {
    ModelSpec model = tests::small_llama();
    model.adapters = Adapters{.rank = 4, .fc1 = false, .fc2 = false, .experts = false};
    ParallelSizes sizes;
    sizes.tp = 2;
    std::vector<std::string> trained;
    std::vector<std::vector<std::int64_t>> shapes;
    for (const Parameter& parameter : decoder_layer_parameters(model, 0, sizes, "")) {
        if (!parameter.trained) continue;
        trained.push_back(parameter.name);
        shapes.push_back(parameter.shape);
    }
    EXPECT_THAT(trained,
                ElementsAre("self_attention.linear_proj.adapter.linear_in.weight", "self_attention.linear_proj.adapter.linear_out.weight",
                            "self_attention.linear_qkv.adapter.linear_in.weight", "self_attention.linear_qkv.adapter.linear_out.weight"));
    // A beside rows has its rows divided, beside columns its columns; B its rows.
    const std::int64_t width = model.heads * model.head_dim, packed = width + 2 * model.kv_heads * model.head_dim;
    EXPECT_THAT(shapes, ElementsAre(ElementsAre(4, width / 2), ElementsAre(model.hidden / 2, 4), ElementsAre(2, model.hidden),
                                    ElementsAre(packed / 2, 4)));
    for (const Parameter& parameter : chunk_parameters(model, sizes, {.embedding = true, .loss = true})) EXPECT_FALSE(parameter.trained);
    const ParameterCount count = decoder_layer_parameter_count(model, 0, sizes);
    EXPECT_EQ(count.trained(), 4 * width / 2 + model.hidden / 2 * 4 + 2 * model.hidden + packed / 2 * 4);
    ModelSpec whole = model;
    whole.adapters.reset();
    EXPECT_EQ(count.frozen, decoder_layer_parameter_count(whole, 0, sizes).total());
    EXPECT_EQ(trained_parameters(model), model.layers * 4 * (width + model.hidden + model.hidden + packed));
}

TEST(Adapters, ExpertsOfARankShareOneOrHaveOneEach) {
    ModelSpec model = model::small_mixture();
    model.adapters = Adapters{.rank = 4, .qkv = false, .proj = false, .fc1 = false, .fc2 = false};
    ParallelSizes sizes;
    sizes.ep = 2;
    const std::int64_t pair = 4 * (model.hidden + 2 * model.moe->expert_ffn) + 4 * (model.moe->expert_ffn + model.hidden);
    EXPECT_EQ(decoder_layer_parameter_count(model, 1, sizes).expert, pair);
    model.adapters->shared_by_experts = false;
    EXPECT_EQ(decoder_layer_parameter_count(model, 1, sizes).expert, model.moe->experts / 2 * pair);
}

TEST(Adapters, AFileWithOthersIsRefused) {
    const auto refused = [](ModelSpec model, const Adapters& adapters) -> std::string {
        model.adapters = adapters;
        try {
            (void)model_from_json(model_to_json(model), "model.json");
            return "";
        } catch (const ConfigError& error) {
            return error.what();
        }
    };
    EXPECT_THAT(refused(tests::small_llama(), {.rank = 0}), HasSubstr("model.json: adapters: rank = 0 is out of range"));
    EXPECT_THAT(refused(tests::small_llama(), {.qkv = false, .proj = false, .fc1 = false, .fc2 = false}),
                HasSubstr("no linear layer of small-llama has an adapter"));
    EXPECT_THAT(refused(model::small::small_falcon_h1(), {}),
                HasSubstr("not predicted with mixers other than softmax attention, Mamba-2 and gated delta nets"));
}

TEST(Adapters, AFileOfTheModelKeepsThem) {
    ModelSpec model = tests::small_llama();
    model.adapters = Adapters{.rank = 8, .alpha = 16, .fc1 = false, .shared_by_experts = false};
    EXPECT_EQ(model_from_json(model_to_json(model), "model.json").adapters, model.adapters);
}

}  // namespace
}  // namespace mgplan::adapters_of_model_test
