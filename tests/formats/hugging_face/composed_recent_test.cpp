// Composed types whose lists, counts of layers or experts are unlike those of the types before them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/parameters.hpp"
#include "tests/formats/hugging_face/class_configs.hpp"

namespace mgplan::formats::composed_recent_test {
namespace {

using class_configs::class_config;
using class_configs::Json;
using class_configs::model_of;
using class_configs::refusal_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ComposedTypes, LongCatHasTwoAttentionsInEachOfItsLayers) {
    Json config = class_config("longcat_flash");
    config["num_layers"] = 2;
    const ModelSpec two = model_of(config);
    EXPECT_EQ(two.layers, 2);
    EXPECT_EQ(total_parameters(two), 54'427'973'632);
    // A token uses twelve of 512 experts with two matrices each and 256 that give back their input; the first matrices of those 256,
    // which transformers' class holds, nobody uses.
    const std::int64_t expert = 3LL * 6144 * 2048, idle = 2LL * 6144 * 2048;
    EXPECT_EQ(total_parameters(two) - active_parameters(two), 2 * ((512 - 12) * expert + 256 * idle));
    config.erase("num_layers");
    config["num_hidden_layers"] = 4;
    EXPECT_EQ(model_of(config).layers, 2) << "its class counts attentions under this name";
    config["num_layers"] = 4;
    EXPECT_THAT(refusal_of(config), HasSubstr("num_hidden_layers = 4 is not twice num_layers = 4"));
    config["num_layers"] = 2;
    config["qk_head_dim"] = 100;
    EXPECT_THAT(refusal_of(config), HasSubstr("qk_head_dim = 100 is not the sum"));
}

TEST(ComposedTypes, DeepSeekV4CompressesKeysAsItsRatiosSay) {
    Json config = class_config("deepseek_v4");
    config.erase("layer_types");
    config.erase("mlp_layer_types");
    const ModelSpec usual = model_of(config);
    EXPECT_EQ(total_parameters(usual), 33'977'396'947) << "its class gives the same lists";
    // Numbers as the published files have them, with one for the layer of multi-token prediction.
    config["compress_ratios"] = {128, 128, 128, 4, 128, 0};
    EXPECT_EQ(total_parameters(model_of(config)), total_parameters(usual));
    config["compress_ratios"] = {0, 128, 128, 4, 128, 0};
    // Two maps to keys of 512, places of 128 tokens, a norm.
    EXPECT_EQ(total_parameters(usual) - total_parameters(model_of(config)), 2LL * 512 * 4096 + 128 * 512 + 512);
    EXPECT_EQ(model_of(config).kinds.front().name, "sliding_attention+moe by words");
    config["compress_ratios"] = {0, 128, 128, 8, 128};
    EXPECT_THAT(refusal_of(config), HasSubstr("compress_ratios holds 8; the layers of this type have 0, 4 or 128"));
    config["compress_ratios"] = {0, 128};
    EXPECT_THAT(refusal_of(config), HasSubstr("compress_ratios has 2 entries for 5 layers"));
    config["compress_ratios"] = {0, 0, 0, 0, 0};
    config["o_groups"] = 7;
    EXPECT_THAT(refusal_of(config), HasSubstr("o_groups = 7 does not divide 64 heads of 512"));
}

TEST(ComposedTypes, DogesExpertsAreRowsOfTwoTables) {
    Json config = class_config("doge");
    const std::int64_t dense = total_parameters(model_of(config));
    config["is_moe"] = true;
    config["num_experts"] = 50;
    config["num_experts_per_tok"] = 8;
    const ModelSpec model = model_of(config);
    EXPECT_EQ(total_parameters(model) - dense, 5 * (2 * 50 * 1024 + 2 * 7 * 1024)) << "seven keys a side: the root of 50";
    EXPECT_EQ(total_parameters(model) - active_parameters(model), 5 * 2 * 42 * 1024);
}

TEST(ComposedTypes, MiniMaxM3IsReadByTheListsOfBothItsForms) {
    Json config = class_config("minimax_m3_vl").at("text_config");
    const std::int64_t plain = total_parameters(model_of(config));
    config.erase("layer_types");
    config.erase("mlp_layer_types");
    config["sparse_attention_config"] = {
        {"sparse_num_index_heads", 2}, {"sparse_index_dim", 32}, {"sparse_attention_freq", {0, 1, 1, 1, 0}}};
    EXPECT_EQ(total_parameters(model_of(config)) - plain, 3 * (3 * 32 * 6144 + 2 * 32));
    config["moe_layer_freq"] = {0, 1, 1, 1, 1};
    EXPECT_EQ(model_of(config).kinds.front().name, "attention+mlp");
    config["moe_layer_freq"] = {0, 1};
    EXPECT_THAT(refusal_of(config), HasSubstr("moe_layer_freq has 2 entries for 5 layers"));
}

TEST(ComposedTypes, LlamaVisionAttendsToPicturesInLayersOfTheirOwn) {
    Json config = {{"model_type", "mllama_text_model"}, {"num_hidden_layers", 5},   {"hidden_size", 4096}, {"intermediate_size", 14336},
                   {"num_attention_heads", 32},         {"num_key_value_heads", 8}, {"vocab_size", 128256}};
    const ModelSpec usual = model_of(config);
    EXPECT_THAT(usual.kind_of_layer, ElementsAre(0, 0, 0, 1, 0)) << "of its class: 3, 8, 13, ...";
    EXPECT_EQ(total_parameters(usual), 2'141'270'274) << "by transformers";
    config["cross_attention_layers"] = nullptr;
    EXPECT_EQ(total_parameters(model_of(config)), total_parameters(usual));
    config["cross_attention_layers"] = Json::array();
    EXPECT_EQ(total_parameters(usual) - total_parameters(model_of(config)), 2 * 128 + 2);
}

TEST(ComposedTypes, Lfm3HasWindowsBetweenItsConvolutions) {
    Json config = class_config("lfm3");
    const std::int64_t usual = total_parameters(model_of(config));
    config.erase("layer_types");
    EXPECT_EQ(total_parameters(model_of(config)), usual);
    EXPECT_EQ(model_of(config).kinds.size(), 3U);
    config["layer_types"] = {"conv", "conv", "conv", "conv", "foo"};
    EXPECT_THAT(refusal_of(config), HasSubstr("layer_types holds 'foo', which no layer of this type is"));
}

TEST(ComposedTypes, HyV4ChoosesKeysInEveryFourthLayer) {
    Json config = class_config("hy_v4");
    const std::int64_t usual = total_parameters(model_of(config));
    config.erase("indexer_types");
    EXPECT_EQ(total_parameters(model_of(config)), usual);
    config["indexer_types"] = {"full", "shared", "shared", "shared", "shared"};
    EXPECT_LT(total_parameters(model_of(config)), usual);
}

}  // namespace
}  // namespace mgplan::formats::composed_recent_test
