// Types of transformers 5.23 that are counted, planned, or refused with what they are. Counts of class defaults stand in class_counts.json.

#include <array>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/json/model_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "tests/formats/hugging_face/class_configs.hpp"

namespace mgplan::formats::composed_latest_test {
namespace {

using class_configs::class_config;
using class_configs::Json;
using class_configs::model_of;
using class_configs::refusal_of;
using testing::ElementsAre;
using testing::HasSubstr;

struct Built {
    std::int64_t parameters;
    std::string_view config;
};

// Configs of other sizes than the classes' own with each of their switches the other way, and the parameters of the language model that
// transformers 5.23.0 builds from them on its meta device.
constexpr std::array kBuilt{
    Built{1'433'824, R"({"model_type":"qwen4_exp","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"head_dim":24,"attention_bias":true,
"layer_types":["linear_attention","full_attention","linear_attention","linear_attention","indexed_attention",
"linear_attention"],"ple_layer_ids":[4,1],"ple_embed_dim":48,"ple_conv_kernel_size":3,"ngram_size":4,"heads_per_ngram":2,
"ngram_vocab_size_base":1000,"make_ngram_vocab_size_divisible_by":64,"hc_count":3,"hc_lowrank":20,"num_experts":8,
"num_experts_per_tok":3,"moe_intermediate_size":40,"shared_expert_intermediate_size":56,"linear_num_key_heads":2,
"linear_num_value_heads":4,"linear_key_head_dim":16,"linear_value_head_dim":24,"linear_conv_kernel_dim":3,
"indexer_n_heads":4,"indexer_kv_heads":1,"indexer_head_dim":32,"indexer_budget":64,"indexer_compress_ratio":8,
"output_gate_type":"sigmoid","split_ngram_parts":4}})"},
    Built{19'616'800, R"({"model_type":"qwen4_exp","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"head_dim":24,"num_experts":8,"num_experts_per_tok":3,
"indexer_n_heads":4,"indexer_kv_heads":1,"indexer_head_dim":32,"indexer_budget":64,"indexer_compress_ratio":8,
"ple_layer_ids":[1,2,5],"ngram_vocab_size_base":5000,"full_attention_interval":3}})"},
    Built{818'208, R"({"model_type":"muse_spark","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"head_dim":24,"attention_bias":true,
"mlp_layer_types":["dense","sparse","sparse","dense","sparse","sparse"],"layer_types":["full_attention","full_attention",
"full_attention","sliding_attention","sliding_attention","sliding_attention"],"layer_rope_theta":[0,1,0,1,1,1],
"moe_hidden_size":48,"moe_intermediate_size":40,"num_local_experts":8,"num_experts_per_tok":3,"tie_word_embeddings":true}})"},
    Built{722'016, R"({"model_type":"muse_glimmer","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"head_dim":24,"attention_bias":true,
"layer_types":["full_attention","full_attention","full_attention","sliding_attention","sliding_attention",
"sliding_attention"],"layer_rope_theta":[0,1,0,1,1,1]}})"},
    Built{719'712, R"({"model_type":"muse_glimmer","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"head_dim":24}})"},
    Built{553'824, R"({"model_type":"cohere_compass","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"attention_bias":true,"layer_types":["full_attention",
"full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention"],"rope_parameters":{
"full_attention":null,"sliding_attention":{"rope_theta":5000.0,"rope_type":"default"}},"logit_scale":0.5,"sliding_window":8}})"},
    Built{937'312, R"({"model_type":"deepseek_ocr2","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"attention_bias":true,"mlp_bias":true,
"mlp_layer_types":["dense","sparse","sparse","dense","sparse","sparse"],"n_routed_experts":8,"n_shared_experts":3,
"moe_intermediate_size":40}})"},
    Built{937'312, R"({"model_type":"deepseek_ocr2","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"attention_bias":true,"mlp_bias":true,
"mlp_layer_types":["dense","sparse","sparse","dense","sparse","sparse"],"n_routed_experts":8,"n_shared_experts":3,
"moe_intermediate_size":40,"num_experts_per_tok":2}})"},
    Built{933'600, R"({"model_type":"deepseek_ocr2","text_config":{"num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,
"num_key_value_heads":3,"intermediate_size":112,"vocab_size":1000,"mlp_layer_types":["dense","sparse","sparse","dense",
"sparse","sparse"],"n_routed_experts":8,"n_shared_experts":3,"moe_intermediate_size":40,"num_experts_per_tok":2}})"},
    Built{1'030'848, R"({"model_type":"zamba","num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,"num_key_value_heads":3,
"intermediate_size":112,"vocab_size":1000,"attention_hidden_size":128,"attention_head_dim":20,"n_mamba_heads":4,
"mamba_expand":3,"mamba_d_state":8,"mamba_d_conv":3,"mamba_dt_rank":10,"mamba_conv_bias":false,"mamba_proj_bias":true,
"tie_word_embeddings":false,"layers_block_type":["mamba","hybrid","linear_attention","hybrid","hybrid","linear_attention"]})"},
    Built{1'045'344, R"({"model_type":"zamba","num_hidden_layers":11,"hidden_size":96,"num_attention_heads":6,"num_key_value_heads":6,
"intermediate_size":112,"vocab_size":1000,"attn_layer_period":3,"attn_layer_offset":1})"},
    Built{505'632, R"({"model_type":"zamba","num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,"num_key_value_heads":3,
"intermediate_size":112,"vocab_size":1000,"layers_block_type":["mamba","mamba","mamba","mamba","mamba","mamba"]})"},
    Built{622'944,
          R"({"model_type":"modernbert-decoder","num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,"intermediate_size":112,
"vocab_size":1000,"norm_bias":true,"attention_bias":true,"mlp_bias":true,"decoder_bias":false,"classifier_bias":true,
"tie_word_embeddings":false,"local_attention":null})"},
    Built{522'280,
          R"({"model_type":"modernbert-decoder","num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,"intermediate_size":112,
"vocab_size":1000,"global_attn_every_n_layers":2})"},
    Built{462'048, R"({"model_type":"chameleon","num_hidden_layers":6,"hidden_size":96,"num_attention_heads":6,"num_key_value_heads":3,
"intermediate_size":112,"vocab_size":1000,"attention_bias":true,"mlp_bias":true,"swin_norm":true,"model_parallel_size":2,
"tie_word_embeddings":true})"},
    Built{394'992, R"({"model_type":"kosmos-2","text_config":{"layers":5,"embed_dim":96,"attention_heads":6,"ffn_dim":112,"vocab_size":1000,
"scale_embedding":false,"tie_word_embeddings":false}})"},
    Built{490'224,
          R"({"model_type":"kosmos-2.5","text_config":{"layers":5,"embed_dim":96,"attention_heads":6,"ffn_dim":112,"vocab_size":1000,
"scale_embedding":false,"tie_word_embeddings":false}})"},
    Built{442'560, R"({"model_type":"xlstm","num_hidden_layers":3,"hidden_size":96,"vocab_size":1000,"num_heads":4,"use_bias":true,
"qk_dim_factor":0.3,"v_dim_factor":0.75,"ffn_proj_factor":1.9,"ffn_round_up_to_multiple_of":24,"weight_mode":"fused",
"add_out_norm":false,"tie_word_embeddings":true})"},
};

TEST(LatestTypes, HaveTheParametersThatTransformersBuildsWithEverySwitchFlipped) {
    for (const Built& built : kBuilt) {
        const ModelSpec model = model_of(Json::parse(built.config));
        EXPECT_EQ(total_parameters(model), built.parameters) << built.config;
        EXPECT_EQ(model_from_json(model_to_json(model), "model"), model) << built.config;
    }
}

TEST(LatestTypes, HaveTheParametersOfTheirCheckpoints) {
    const auto of_class = [](const std::string& type) {
        return model_of({{"model_type", "whole"}, {"text_config", {{"model_type", type}}}});
    };
    // All of transformers 5.23.0 from the classes' defaults. Muse-Spark-Open-816B-A42B counts without the tables of words.
    const ModelSpec spark = of_class("muse_spark_text");
    EXPECT_EQ(total_parameters(spark), 819'990'536'192);
    const std::int64_t tables = 2 * spark.vocab * spark.hidden;
    EXPECT_NEAR(static_cast<double>(total_parameters(spark) - tables) / 1e9, 816, 1);
    EXPECT_NEAR(static_cast<double>(active_parameters(spark) - tables) / 1e9, 42, 1);
    EXPECT_EQ(total_parameters(of_class("muse_glimmer_text")), 27'854'780'928);
    EXPECT_EQ(total_parameters(of_class("zamba")), 7'232'490'496);
    EXPECT_EQ(total_parameters(of_class("modernbert-decoder")), 149'655'232);
    EXPECT_EQ(total_parameters(of_class("kosmos_2_text_model")), 1'342'289'920);
    EXPECT_EQ(total_parameters(of_class("kosmos_2_5_text_model")), 846'884'352);
    EXPECT_EQ(total_parameters(of_class("xlstm")), 6'865'424'896);
}

/// Qwen4-Exp's class defaults with an indexer.
Json qwen4_exp() {
    return class_config("qwen4_exp");
}

TEST(Qwen4Exp, CountsRowsOfWordsThatATokenReadsAsActive) {
    Json config = qwen4_exp();
    const ModelSpec without = model_of(config);
    config["text_config"]["ple_layer_ids"] = {2};
    const ModelSpec with = model_of(config);
    const std::int64_t hidden = 2048, wide = 4 * hidden, rows_read = 16 * 128;
    const std::int64_t maps = hidden * wide + hidden * hidden + 3 * wide + 4 * wide;
    EXPECT_EQ(active_parameters(with) - active_parameters(without), rows_read + maps);
    // Sixteen primes of 20 million and more, in rows of 128: 41 B.
    EXPECT_NEAR(static_cast<double>(total_parameters(with) - total_parameters(without) - maps), 16 * 20e6 * 128, 1e6);
    EXPECT_TRUE(is_counted_only(with));
}

TEST(Qwen4Exp, RefusesWhatItsClassRefuses) {
    const auto with = [](const std::string& field, const Json& value) {
        Json config = qwen4_exp();
        config["text_config"][field] = value;
        return refusal_of(config);
    };
    EXPECT_THAT(with("indexer_n_heads", nullptr),
                HasSubstr("indexer_n_heads is not given, and attention of this type always has an indexer"));
    EXPECT_THAT(with("indexer_kv_heads", 2), HasSubstr("indexer_kv_heads = 2 is another network"));
    EXPECT_THAT(with("indexer_budget", 100), HasSubstr("indexer_budget = 100 is no multiple of indexer_compress_ratio = 32"));
    EXPECT_THAT(with("hc_count", 1), HasSubstr("hc_count = 1 is out of range"));
    EXPECT_THAT(with("output_gate_type", "tanh"), HasSubstr("output_gate_type = 'tanh' is not known; use silu or sigmoid"));
    EXPECT_THAT(with("ple_layer_ids", {4}), HasSubstr("ple_layer_ids holds 4, whose layer is no linear_attention"));
    EXPECT_THAT(with("ple_layer_ids", {6}), HasSubstr("ple_layer_ids holds 6, which is no layer; give numbers from 1 to 5"));
    Json config = qwen4_exp();
    config["text_config"].update({{"ple_layer_ids", {1}}, {"ple_embed_dim", 100}});
    EXPECT_THAT(refusal_of(config), HasSubstr("ple_embed_dim = 100 is no multiple of 16 n-gram heads"));
    config["text_config"].update({{"ple_embed_dim", 1 << 20}, {"ngram_size", 60}, {"heads_per_ngram", 4000}});
    EXPECT_THAT(refusal_of(config), HasSubstr("give 236000 tables in 1 layer"));
    // Layers of gated delta nets alone need no indexer.
    Json linear = qwen4_exp();
    linear["text_config"].update({{"indexer_n_heads", nullptr}, {"layer_types", Json::array()}});
    for (int layer = 0; layer < 5; ++layer) linear["text_config"]["layer_types"].push_back("linear_attention");
    EXPECT_EQ(refusal_of(linear), "accepted");
}

TEST(MuseGlimmer, IsPlannedWithoutTheNormsThatHaveNoWeights) {
    const ModelSpec model = model_of(class_config("muse_glimmer"));
    EXPECT_FALSE(is_counted_only(model));
    EXPECT_TRUE(model.pre_norms && model.post_norms && model.attention_output_gate);
    EXPECT_EQ(model.logit_softcap, 20);
    EXPECT_THAT(model.left_out, ElementsAre("a norm of the embeddings without weights", "an epsilon of the norms after both halves",
                                            "norms of queries and keys without weights"));
    EXPECT_EQ(model.window_layers, (std::vector<bool>{false, true, true, true, false})) << "counted from the last";
    EXPECT_EQ(model.rotary_layers, model.window_layers);
    Json config = class_config("muse_glimmer");
    config["text_config"]["layer_rope_theta"] = {1, 0, 1, 1, 1};
    EXPECT_EQ(model_of(config).rotary_layers, (std::vector<bool>{true, false, true, true, true}));
    config["text_config"]["layer_rope_theta"] = {1, 0};
    EXPECT_THAT(refusal_of(config), HasSubstr("layer_rope_theta is no list of a number for each of 5 layers"));
}

TEST(CohereCompass, TakesPositionsByTheKindOfLayer) {
    Json config = class_config("cohere_compass");
    EXPECT_FALSE(is_counted_only(model_of(config)));
    EXPECT_TRUE(model_of(config).left_out.empty());
    EXPECT_EQ(model_of(config).order, LayerOrder::parallel_shared_norm);
    Json& text = config["text_config"];
    text["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"};
    EXPECT_THAT(refusal_of(config), HasSubstr("rope_parameters has no entry sliding_attention"));
    text["rope_parameters"] = {{"full_attention", nullptr}, {"sliding_attention", {{"rope_theta", 500.0}}}};
    const ModelSpec windows = model_of(config);
    EXPECT_EQ(windows.rotary_layers, (std::vector<bool>{true, true, false, true, false}));
    EXPECT_EQ(windows.window_rotary_base, 500);
    text["rope_parameters"] = {{"full_attention", nullptr}, {"sliding_attention", nullptr}};
    EXPECT_EQ(model_of(config).position, PositionEmbedding::none);
}

TEST(LatestTypes, TieEmbeddingsByTheFieldsThatTheirClassesAsk) {
    const auto tied = [](const std::string& type, const Json& outer, const Json& inner) {
        Json config = class_config(type);
        config["text_config"].erase("tie_word_embeddings");
        config.erase("tie_word_embeddings");
        if (!outer.is_null()) config["tie_word_embeddings"] = outer;
        if (!inner.is_null()) config["text_config"]["tie_word_embeddings"] = inner;
        return model_of(config).tied_embeddings;
    };
    // Each by building the model with transformers 5.23.0.
    for (const auto* type : {"qwen4_exp", "muse_glimmer", "cohere_compass"}) {
        EXPECT_FALSE(tied(type, nullptr, true)) << type;
        EXPECT_TRUE(tied(type, true, false)) << type;
        EXPECT_FALSE(tied(type, nullptr, nullptr)) << type;
    }
    EXPECT_FALSE(tied("muse_spark", true, true));
    EXPECT_TRUE(tied("kosmos-2", false, nullptr));
    EXPECT_TRUE(tied("kosmos-2", nullptr, false));
    EXPECT_FALSE(tied("kosmos-2", false, false));
    EXPECT_TRUE(tied("kosmos-2.5", false, nullptr));
    EXPECT_FALSE(tied("kosmos-2.5", true, false));
    EXPECT_TRUE(tied("cohere_compass", true, nullptr));
}

TEST(LatestTypes, ZambasBlocksAreSharedWithTiedEmbeddingsAlone) {
    Json config = class_config("zamba");
    config["tie_word_embeddings"] = false;
    const Job job = read_hugging_face(config, "test", "config.json");
    EXPECT_THAT(job.assumptions, testing::Contains(HasSubstr("a block of attention of its own for each layer that has one")));
    Json second = {{"model_type", "zamba2"},      {"num_hidden_layers", 3},
                   {"hidden_size", 64},           {"intermediate_size", 128},
                   {"num_attention_heads", 4},    {"vocab_size", 100},
                   {"num_mem_blocks", 1},         {"mamba_d_state", 16},
                   {"tie_word_embeddings", true}, {"layers_block_type", {"hybrid", "mamba", "hybrid"}}};
    EXPECT_EQ(refusal_of(second), "accepted");
    second["tie_word_embeddings"] = false;
    EXPECT_THAT(refusal_of(second), HasSubstr("tie_word_embeddings = false unties the blocks that layers share as well"));
    config["num_hidden_layers"] = 2;
    EXPECT_THAT(refusal_of(config), HasSubstr("layers_block_type"));
}

TEST(LatestTypes, BiasesOfMlpsThatExpertsDoNotHaveAreRefused) {
    // transformers gives the shared experts of aria_text biases, and those of deepseek_v32 none.
    for (const auto* type : {"deepseek_v32", "glm_moe_dsa", "aria_text"}) {
        Json config = class_config(type);
        config["mlp_bias"] = true;
        config["num_experts_per_tok"] = 2;
        EXPECT_THAT(refusal_of(config), HasSubstr("mlp_bias = true puts no biases on the experts of model_type")) << type;
    }
    EXPECT_EQ(refusal_of(class_config("gpt_oss")), "accepted");
}

TEST(OtherKinds, AreRefusedAsWhatTheyAre) {
    const auto refusal = [](const std::string& type) {
        return refusal_of({{"model_type", type}, {"num_hidden_layers", 2}, {"hidden_size", 64}, {"vocab_size", 100}});
    };
    for (const auto* encoder :
         {"bert", "bert-generation", "xlm-roberta-xl", "xmod", "roc_bert", "roberta-prelayernorm", "nomic_bert", "t5gemma"})
        EXPECT_THAT(refusal(encoder), HasSubstr("is no decoder-only transformer, so no layer here describes it")) << encoder;
    EXPECT_THAT(refusal("xlnet"), HasSubstr("permutation language modelling"));
    EXPECT_THAT(refusal("trocr"), HasSubstr("is the decoder of an encoder-decoder"));
    EXPECT_THAT(refusal("git"), HasSubstr("captions pictures"));
    EXPECT_THAT(refusal("moshi"), HasSubstr("is two transformers"));
    EXPECT_THAT(refusal("blt"), HasSubstr("is four transformers"));
    EXPECT_THAT(refusal("cpmant"), HasSubstr("on both sides"));
    EXPECT_THAT(refusal_of({{"model_type", "diffusion_gemma"}, {"text_config", {{"hidden_size", 64}}}}),
                HasSubstr("model_type 'diffusion_gemma_text' is trained by block diffusion"));
    try {
        (void)read_hugging_face({{"model_type", "pi0"}}, "test", "config.json", "llama");
        FAIL() << "assumed to be a llama";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("flow matching"));
    }
}

}  // namespace
}  // namespace mgplan::formats::composed_latest_test
