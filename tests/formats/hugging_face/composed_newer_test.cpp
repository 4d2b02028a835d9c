// Composed types of transformers 5, by the lists and forms of their files. Counts beside transformers' own stand in class_counts.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "tests/formats/hugging_face/class_configs.hpp"

namespace mgplan::formats::composed_newer_test {
namespace {

using class_configs::class_config;
using class_configs::Json;
using class_configs::model_of;
using class_configs::refusal_of;
using testing::HasSubstr;

double billions(std::int64_t count) {
    return static_cast<double>(count) / 1e9;
}

/// The class's own sizes: a file of a larger model states none of them.
ModelSpec of_class(const std::string& type) {
    return model_of({{"model_type", "whole"}, {"text_config", {{"model_type", type}}}});
}

TEST(NewerTypes, HaveAsManyParametersAsTheirNamesSay) {
    // mistralai/Mistral-Large-4-1T-A52B, by the checkpoint's name in configuration_mistral_large4.py.
    const ModelSpec mistral = of_class("mistral_large4_text");
    EXPECT_NEAR(billions(total_parameters(mistral)), 1050, 50);
    EXPECT_NEAR(billions(active_parameters(mistral)), 52, 2);
    // Step-3.5-Flash, by its technical report (February 2026): 196 B, of which a token uses 11 B.
    const ModelSpec step = of_class("step3p5");
    EXPECT_NEAR(billions(total_parameters(step)), 196, 0.5);
    EXPECT_NEAR(billions(active_parameters(step)), 11, 0.5);
    // arXiv 2511.17127 (ZAYA1), abstract: 8.3 B and 760 M, without the table of words.
    const ModelSpec zaya = of_class("zaya");
    const std::int64_t table = zaya.vocab * zaya.hidden;
    EXPECT_NEAR(billions(total_parameters(zaya) - table), 8.3, 0.05);
    EXPECT_NEAR(billions(active_parameters(zaya) - table), 0.76, 0.01);
    // arXiv 2404.07413 (JetMoE-8B), abstract: 8 B, of which a token uses 2 B; 2.2 B in the table of its card. The table of words is left
    // out here.
    Json jet = class_config("jetmoe");
    jet["num_hidden_layers"] = 24;
    EXPECT_NEAR(billions(total_parameters(model_of(jet))), 8.5, 0.1);
    EXPECT_NEAR(billions(active_parameters(model_of(jet)) - 32000 * 2048), 2.2, 0.1);
    EXPECT_TRUE(is_counted_only(mistral));
}

TEST(NewerTypes, OfClassDefaultsHaveTheParametersThatTransformersBuilds) {
    EXPECT_EQ(total_parameters(of_class("glm5_next_text")), 313'326'816'766);
    EXPECT_EQ(total_parameters(of_class("inkling2_text")), 593'722'930'176);
    Json hrm = {{"model_type", "hrm_text"},  {"num_hidden_layers", 16},   {"hidden_size", 1536},
                {"intermediate_size", 4096}, {"num_attention_heads", 12}, {"vocab_size", 151'808}};
    EXPECT_EQ(total_parameters(model_of(hrm)), 1'447'822'848);
    hrm["num_hidden_layers"] = 128;  // each pass through a stack, as transformers writes it
    hrm["num_layers_per_stack"] = 16;
    EXPECT_EQ(total_parameters(model_of(hrm)), 1'447'822'848);
    EXPECT_TRUE(is_counted_only(model_of(hrm)));
    Json shared = {{"model_type", "glm5_next"}, {"text_config", {{"model_type", "glm5_next_text"}, {"num_hidden_layers", 8}}}};
    const std::int64_t all = total_parameters(model_of(shared));
    shared["text_config"]["index_topk_pattern"] = "FFFFFFFS";
    EXPECT_EQ(all - total_parameters(model_of(shared)), 32 * 128 * 1536 + 128 * 4096 + 256 + 32 * 4096 + 16 * 128 + 128 * 4096)
        << "the last layer takes over the keys that the fourth chose";
    shared["text_config"]["linear_attn_config"] = {{"num_heads", 32}};
    EXPECT_LT(total_parameters(model_of(shared)), all);
    shared["text_config"]["layer_types"] = {"linear"};
    EXPECT_THAT(refusal_of(shared), HasSubstr("layer_types has 1 entries for 8 layers"));
}

TEST(NewerTypes, SharedBlocksOfZamba2StandWhereItsListOrItsClassPutsThem) {
    Json zamba = {{"model_type", "zamba2"},    {"num_hidden_layers", 54}, {"hidden_size", 2560}, {"intermediate_size", 10'240},
                  {"num_attention_heads", 32}, {"vocab_size", 32'000},    {"num_mem_blocks", 2}, {"mamba_d_state", 64}};
    const std::int64_t usual = total_parameters(model_of(zamba));
    zamba["layers_block_type"] = std::vector<std::string>(54, "mamba");
    for (const std::size_t layer : {6, 12, 18, 24, 30, 36, 42, 47, 51}) zamba["layers_block_type"][layer] = "hybrid";
    EXPECT_EQ(total_parameters(model_of(zamba)), usual);
    zamba.erase("layers_block_type");
    zamba["num_hidden_layers"] = 38;
    EXPECT_THAT(refusal_of(zamba), HasSubstr("layers_block_type is missing, and the class's own is for 54 layers"));
}

TEST(NewerTypes, LayersWithXieluBehindAGateAreCountedAlone) {
    ModelSpec model = model_of(class_config("jamba"));
    EXPECT_FALSE(is_counted_only(model));
    for (NamedLayer& kind : model.kinds) {
        if (feed_forward_as<Mlp>(kind.layer) != nullptr) std::get<Mlp>(*kind.layer.feed_forward).activation = Activation::xielu;
    }
    EXPECT_TRUE(is_counted_only(model));
}

TEST(NewerTypes, LastLayerOfGemma4SeesAll) {
    Json gemma = class_config("gemma4").at("text_config");
    const std::int64_t usual = total_parameters(model_of(gemma));
    gemma["layer_types"].back() = "sliding_attention";
    EXPECT_EQ(total_parameters(model_of(gemma)), usual) << "whatever the file says (configuration_gemma4.py)";
}

TEST(NewerTypes, LayersWithoutPositionsHaveWiderKeysAndSomeTakeThemOver) {
    Json config = class_config("mistral_large4").at("text_config");
    const std::int64_t plain = total_parameters(model_of(config));
    config["no_rope_layers"] = {1, 1, 1, 1, 1};  // its class: every fourth has none
    EXPECT_EQ(plain - total_parameters(model_of(config)), 64 * 64 * 512 - 64 * 6144) << "heads of 64 more, and no shared part";
    config["kv_source_layers"] = {0, 1, 1, 3, 4};
    EXPECT_EQ(plain - total_parameters(model_of(config)), 64 * 64 * 512 - 64 * 6144 + 576 * 6144 + 512);
    config["kv_source_layers"] = {0, 1};
    EXPECT_THAT(refusal_of(config), HasSubstr("kv_source_layers has 2 entries for 5 layers"));
    config.erase("kv_source_layers");
    config["no_rope_layers"] = {1};
    EXPECT_THAT(refusal_of(config), HasSubstr("no_rope_layers has 1 entries for 5 layers"));
}

TEST(NewerTypes, StepIsReadByTheListsOfBothItsForms) {
    const Json words = {"full_attention",    "sliding_attention", "full_attention",
                        "sliding_attention", "full_attention",    "sliding_attention"};
    Json config = {{"model_type", "step3p5"},           {"num_hidden_layers", 6},   {"hidden_size", 4096},  {"intermediate_size", 11264},
                   {"num_attention_heads", 64},         {"num_key_value_heads", 8}, {"vocab_size", 128815}, {"moe_intermediate_size", 640},
                   {"num_sliding_attention_heads", 96}, {"layer_types", words}};
    EXPECT_EQ(total_parameters(model_of(config)), 8'871'654'912) << "by transformers, its text part and output layer";
    // As on the hub, with a layer of multi-token prediction at the end of each list.
    Json hub = {{"model_type", "step3p5"},
                {"num_hidden_layers", 6},
                {"hidden_size", 4096},
                {"intermediate_size", 11264},
                {"num_attention_heads", 64},
                {"num_attention_groups", 8},
                {"vocab_size", 128815},
                {"moe_num_experts", 288},
                {"moe_top_k", 8},
                {"share_expert_dims", 1280},
                {"moe_layers_enum", "3,4,5"},
                {"layer_types", words},
                {"attention_other_setting", {{"num_attention_heads", 96}}}};
    hub["layer_types"].push_back("full_attention");
    EXPECT_EQ(total_parameters(model_of(hub)), 15'666'427'392) << "the same";
    hub["moe_layers_enum"] = {3, 4, 5};
    EXPECT_EQ(total_parameters(model_of(hub)), 15'666'427'392);
    hub["moe_layers_enum"] = "3,x";
    EXPECT_THAT(refusal_of(hub), HasSubstr("moe_layers_enum"));
    hub["layer_types"] = {"full_attention"};
    EXPECT_THAT(refusal_of(hub), HasSubstr("layer_types or mlp_layer_types has 1 entries for 6 layers"));
}

TEST(NewerTypes, DotsNamesItsWindowsSizesInEitherForm) {
    Json config = class_config("dots3_note").at("text_config");
    const std::int64_t plain = total_parameters(model_of(config));
    // The published form: sizes of layers with a window under names of their own, and "full_attention" for what an indexer serves.
    config.erase("per_layer_config");
    config["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"};
    config["swa_num_attention_heads"] = 64;
    EXPECT_EQ(total_parameters(model_of(config)), plain);
    config["use_dsa"] = false;
    const std::int64_t indexer = 64LL * 128 * 1024 + 128 * 5120 + 2 * 128 + 64 * 5120;
    EXPECT_EQ(plain - total_parameters(model_of(config)), 2 * indexer);
}

TEST(NewerTypes, WordsPassNoExpertsOfPictures) {
    const ModelSpec model = model_of(class_config("ernie4_5_vl_moe").at("text_config"));
    const std::int64_t width = 3LL * 2560;
    EXPECT_EQ(total_parameters(model) - active_parameters(model), 4 * (58 * width * 1536 + 64 * width * 512));
    Json config = class_config("ernie4_5_vl_moe").at("text_config");
    config["moe_intermediate_size"] = {1536};
    EXPECT_THAT(refusal_of(config), HasSubstr("moe_intermediate_size has 1 entries; give two"));
    config.erase("moe_intermediate_size");
    config["use_bias"] = true;
    EXPECT_THAT(refusal_of(config), HasSubstr("use_bias = true is not described by any layer"));
}

TEST(NewerTypes, AttentionBiasesAreRefusedWhereNoPartHasThem) {
    for (const auto* type : {"axk2", "bailing_hybrid", "zaya"}) {
        Json config = class_config(type);
        config["attention_bias"] = true;
        EXPECT_THAT(refusal_of(config), HasSubstr("attention_bias = true is not described by any layer of model_type")) << type;
    }
}

}  // namespace
}  // namespace mgplan::formats::composed_newer_test
