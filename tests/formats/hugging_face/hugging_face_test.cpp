#include "formats/hugging_face/hugging_face.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/parameters/parameters.hpp"
#include "plan/text/embedded_files.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::hugging_face_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

ModelSpec read(const Json& json) {
    return read_hugging_face(json, "test", "config.json").model;
}

std::string refusal(const Json& json) {
    try {
        (void)read_hugging_face(json, "test", "config.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

/// A small Llama; fields of `changes` replace its own, null removes.
Json llama(const Json& changes = Json::object()) {
    Json json = {{"model_type", "llama"},    {"num_hidden_layers", 4},         {"hidden_size", 64},
                 {"intermediate_size", 128}, {"num_attention_heads", 4},       {"vocab_size", 100},
                 {"rope_theta", 1e4},        {"max_position_embeddings", 256}, {"some_field_of_tomorrow", {1}}};
    for (const auto& item : changes.items()) json[item.key()] = item.value();
    return json;
}

TEST(HuggingFace, ReadsGpt2WithItsOwnNamesAndDefaults) {
    // The published config of gpt2 leaves n_inner null and ties the embeddings without saying so.
    const ModelSpec model = read({{"model_type", "gpt2"},
                                  {"n_layer", 12},
                                  {"n_embd", 768},
                                  {"n_head", 12},
                                  {"n_inner", nullptr},
                                  {"n_positions", 1024},
                                  {"n_ctx", 1024},
                                  {"vocab_size", 50257},
                                  {"activation_function", "gelu_new"},
                                  {"attn_pdrop", 0.1},
                                  {"resid_pdrop", 0.1}});
    EXPECT_EQ(total_parameters(model), 124'439'808);  // the published count of the smallest GPT-2
    EXPECT_EQ(model.ffn, 3072);
    EXPECT_TRUE(model.tied_embeddings);
    EXPECT_FALSE(model.gated_mlp);
    EXPECT_EQ(model.position, PositionEmbedding::learned);
    EXPECT_EQ(model.normalization, Normalization::layer_norm);
    EXPECT_DOUBLE_EQ(model.attention_dropout, 0.1);
}

TEST(HuggingFace, FillsAbsentAndNullFieldsAsTheArchitectureDoes) {
    const ModelSpec plain = read(llama({{"head_dim", nullptr}}));
    EXPECT_EQ(plain.kv_heads, 4);
    EXPECT_EQ(plain.head_dim, 16);
    EXPECT_FALSE(plain.tied_embeddings);
    EXPECT_FALSE(plain.qkv_bias);
    const Json no_window = {{"sliding_window", nullptr}, {"model_type", "mistral"}, {"num_key_value_heads", 2}};
    EXPECT_FALSE(read(llama(no_window)).sliding_window);

    const ModelSpec qwen2 =
        read(llama({{"model_type", "qwen2"}, {"num_key_value_heads", 2}, {"sliding_window", 64}, {"use_sliding_window", false}}));
    EXPECT_TRUE(qwen2.qkv_bias);
    EXPECT_FALSE(qwen2.attention_output_bias);
    EXPECT_EQ(qwen2.sliding_window, 0);
    const auto typed = [](const Json& types) {
        return llama({{"model_type", "qwen3"}, {"num_key_value_heads", 2}, {"sliding_window", 64}, {"layer_types", types}});
    };
    const std::string window = "sliding_attention", all = "full_attention";
    EXPECT_EQ(read(typed({window, all, window, all})).full_attention_every, 2);
    EXPECT_EQ(read(typed({window, window, window, window})).full_attention_every, 0);
    EXPECT_EQ(read(typed({window, window, window, window})).sliding_window, 64);
    EXPECT_EQ(read(typed({all, all, all, all})).sliding_window, 0);
    EXPECT_EQ(read_hugging_face(typed({all, window, all, window}), "test", "config.json").model.window_layers,
              (std::vector<bool>{false, true, false, true}));
    EXPECT_THAT(refusal(typed({window, all})), HasSubstr("layer_types has 2 entries for 4 layers"));
    EXPECT_THAT(refusal(typed({window, window, window, "linear_attention"})), HasSubstr("layer_types holds \"linear_attention\""));

    const ModelSpec biased = read(llama({{"attention_bias", true}}));
    EXPECT_TRUE(biased.qkv_bias && biased.attention_output_bias);
    EXPECT_TRUE(read(llama({{"model_type", "qwen3"}, {"num_key_value_heads", 2}})).qk_norm);
    EXPECT_DOUBLE_EQ(read(llama({{"model_type", "nemotron"}, {"hidden_act", "relu2"}})).rotary_fraction, 0.5);
}

TEST(HuggingFace, KeepsTheRotaryBaseTheScalingsNameAndEpsilon) {
    const ModelSpec plain = read(llama({{"rope_scaling", nullptr}}));
    EXPECT_EQ(plain.rotary_base, 10000);
    EXPECT_EQ(plain.rotary_scaling, "");
    EXPECT_EQ(plain.norm_epsilon, 1e-6) << "configuration_llama.py";
    const Json llama3 = {{"rope_type", "llama3"},
                         {"factor", 32.0},
                         {"low_freq_factor", 2.0},
                         {"high_freq_factor", 8.0},
                         {"original_max_position_embeddings", 8192}};
    const ModelSpec scaled = read(llama({{"rope_theta", 5e5}, {"rope_scaling", llama3}, {"rms_norm_eps", 1e-6}}));
    EXPECT_EQ(scaled.rotary_base, 5e5);
    EXPECT_EQ(scaled.rotary_scaling, "llama3");
    EXPECT_EQ(scaled.rotary_scaling_values,
              (RotaryScaling{.factor = 32, .original_positions = 8192, .low_frequency_factor = 2, .high_frequency_factor = 8}));
    EXPECT_EQ(scaled.norm_epsilon, 1e-6);
    EXPECT_EQ(read(llama({{"rope_scaling", {{"type", "yarn"}, {"factor", 40}}}})).rotary_scaling, "yarn");
    const ModelSpec nested = read(llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}}));
    EXPECT_EQ(nested.rotary_base, 1e6);
    EXPECT_EQ(nested.rotary_scaling, "");
}

TEST(HuggingFace, FindsTheMixtureLayersOfEachConvention) {
    const Json experts = {{"model_type", "qwen3_moe"},
                          {"num_key_value_heads", 2},
                          {"num_experts", 8},
                          {"num_experts_per_tok", 2},
                          {"moe_intermediate_size", 32}};
    const auto with = [&](Json more) {
        Json json = llama(experts);
        for (const auto& item : more.items()) json[item.key()] = item.value();
        return read(json).moe_layers;
    };
    EXPECT_EQ(with({{"model_type", "qwen3_moe"}}), (std::vector<bool>{true, true, true, true}));
    EXPECT_EQ(with({{"decoder_sparse_step", 2}}), (std::vector<bool>{false, true, false, true}));
    EXPECT_EQ(with({{"mlp_only_layers", {1}}}), (std::vector<bool>{true, false, true, true}));
    EXPECT_EQ(with({{"first_k_dense_replace", 1}, {"moe_layer_freq", 2}}), (std::vector<bool>{false, false, true, false}));
    EXPECT_EQ(with({{"moe_layer_freq", {0, 1, 1, 0}}}), (std::vector<bool>{false, true, true, false}));

    Json dense = llama(experts);
    dense["mlp_only_layers"] = {0, 1, 2, 3};
    EXPECT_FALSE(read(dense).moe.has_value());
}

TEST(HuggingFace, ReadsDeepSeekRoutingAndLatentAttention) {
    const ModelSpec model = read(llama({{"model_type", "deepseek_v3"},
                                        {"n_routed_experts", 8},
                                        {"num_experts_per_tok", 2},
                                        {"moe_intermediate_size", 32},
                                        {"n_shared_experts", 2},
                                        {"n_group", 4},
                                        {"topk_group", 2},
                                        {"topk_method", "noaux_tc"},
                                        {"scoring_func", "sigmoid"},
                                        {"q_lora_rank", nullptr},
                                        {"kv_lora_rank", 16},
                                        {"qk_nope_head_dim", 8},
                                        {"qk_rope_head_dim", 4},
                                        {"v_head_dim", 8},
                                        {"num_nextn_predict_layers", 1}}));
    ASSERT_TRUE(model.mla && model.moe);
    EXPECT_EQ(model.mla->q_lora_rank, 0);
    EXPECT_EQ(model.qk_head_dim(), 12);
    EXPECT_EQ(model.moe->shared_ffn, 64);
    EXPECT_EQ(model.moe->group_top_k, 2);
    EXPECT_TRUE(model.moe->expert_bias);
    EXPECT_EQ(model.moe->score, RouterScore::sigmoid);
    EXPECT_EQ(model.mtp_layers, 1);
}

TEST(HuggingFace, ReadsTheTextPartOfLargerModels) {
    const Job job = read_hugging_face({{"model_type", "llava"}, {"vision_config", Json::object()}, {"text_config", llama()}}, "vlm", "c");
    EXPECT_EQ(job.model.layers, 4);
    EXPECT_THAT(job.assumptions, testing::Contains(HasSubstr("only the language model")));
}

TEST(HuggingFace, ReadsLlama4WithTheDenseWidthAndTheExpertsOfItsOwn) {
    // Fields of the published config.json of Llama-4-Maverick-17B-128E; its card says 400 B parameters, 17 B of them active.
    const Json text = {{"model_type", "llama4_text"},
                       {"num_hidden_layers", 48},
                       {"hidden_size", 5120},
                       {"intermediate_size", 8192},
                       {"intermediate_size_mlp", 16384},
                       {"num_attention_heads", 40},
                       {"num_key_value_heads", 8},
                       {"head_dim", 128},
                       {"num_local_experts", 128},
                       {"num_experts_per_tok", 1},
                       {"interleave_moe_layer_step", 2},
                       {"use_qk_norm", false},
                       {"attention_chunk_size", 8192},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 5e5},
                       {"vocab_size", 202048},
                       {"max_position_embeddings", 1048576}};
    const Json maverick = {
        {"model_type", "llama4"}, {"tie_word_embeddings", false}, {"vision_config", Json::object()}, {"text_config", text}};
    const Job job = read_hugging_face(maverick, "maverick", "config.json");
    EXPECT_EQ(job.model.ffn, 16384);
    EXPECT_EQ(job.model.moe->expert_ffn, 8192);
    EXPECT_EQ(job.model.moe->shared_ffn, 8192);
    EXPECT_EQ(job.model.moe->score, RouterScore::sigmoid);
    EXPECT_FALSE(job.model.moe_layers[0]);
    EXPECT_TRUE(job.model.moe_layers[1]);
    EXPECT_NEAR(static_cast<double>(total_parameters(job.model)) / 1e9, 400, 2);
    EXPECT_NEAR(static_cast<double>(active_parameters(job.model)) / 1e9, 17, 0.5);
    EXPECT_THAT(job.assumptions, testing::Contains(HasSubstr("only the language model")));
    EXPECT_THAT(job.model.left_out, testing::Contains(HasSubstr("chunks of 8,192 tokens")));
    EXPECT_THAT(job.model.left_out, testing::Contains("12 layers without rotary positions"));
    EXPECT_THAT(job.assumptions, testing::Not(testing::Contains(HasSubstr("not known"))));

    Json scout = maverick;
    scout["text_config"]["rope_scaling"] = {{"rope_type", "llama3"},
                                            {"factor", 16},
                                            {"low_freq_factor", 1},
                                            {"high_freq_factor", 1},
                                            {"original_max_position_embeddings", 8192}};
    scout["text_config"]["num_local_experts"] = 16;
    scout["text_config"]["interleave_moe_layer_step"] = 1;
    scout["text_config"]["use_qk_norm"] = true;
    const Job small = read_hugging_face(scout, "scout", "config.json");
    EXPECT_NEAR(static_cast<double>(total_parameters(small.model)) / 1e9, 108, 2);
    EXPECT_FALSE(small.model.qk_norm) << "its norm has no weights";
    scout["text_config"]["moe_layers"] = {1, 3};
    EXPECT_EQ(read(scout).moe_layers[3], true);
    EXPECT_EQ(read(scout).moe_layers[2], false);
}

TEST(HuggingFace, TakesFromBesideTheTextPartWhatItLeavesOut) {
    Json text = llama({{"model_type", "qwen2_5_vl_text"}, {"num_key_value_heads", 2}});
    text.erase("vocab_size");
    const Json vlm = {{"model_type", "qwen2_5_vl"}, {"vocab_size", 321}, {"tie_word_embeddings", true}, {"text_config", text}};
    const Job job = read_hugging_face(vlm, "vlm", "c");
    EXPECT_EQ(job.model.vocab, 321);
    EXPECT_TRUE(job.model.tied_embeddings);
    EXPECT_TRUE(job.model.qkv_bias) << "as Qwen 2 has them";
    text["tie_word_embeddings"] = false;
    const Job conflict = read_hugging_face({{"tie_word_embeddings", true}, {"vocab_size", 321}, {"text_config", text}}, "vlm", "c");
    EXPECT_TRUE(conflict.model.tied_embeddings) << "the outer field decides, as in transformers";
    EXPECT_THAT(conflict.notes, testing::Contains(HasSubstr("tied is taken")));
}

TEST(HuggingFace, NamesEveryMissingField) {
    const std::string text = refusal({{"model_type", "llama"}});
    for (const char* field : {"num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "intermediate_size"})
        EXPECT_THAT(text, HasSubstr(field));
}

TEST(HuggingFace, RefusesAbsurdSizes) {
    EXPECT_THAT(refusal(llama({{"hidden_size", 9.3e18}, {"num_hidden_layers", -4}})),
                testing::AllOf(HasSubstr("hidden_size"), HasSubstr("num_hidden_layers = -4 is out of range")));
    EXPECT_THAT(refusal(llama({{"num_hidden_layers", 1e30}})), HasSubstr("out of range"));
    EXPECT_THAT(refusal(llama({{"num_hidden_layers", 9223372036854775808ULL}})), HasSubstr("out of range"));
    EXPECT_THAT(refusal(llama({{"hidden_size", 2.5}})), HasSubstr("not a whole number"));
    EXPECT_THAT(refusal(llama({{"hidden_size", "64"}})), HasSubstr("not a whole number"));
    EXPECT_THAT(refusal(llama({{"num_key_value_heads", 3}})), HasSubstr("kv heads = 3 does not divide attention heads = 4; use 1, 2 or 4"));
    EXPECT_THAT(refusal(llama({{"num_attention_heads", 7}})), HasSubstr("give head_dim"));
    EXPECT_THAT(refusal(llama({{"partial_rotary_factor", 0}})), HasSubstr("rotary fraction"));
    EXPECT_THAT(refusal(llama({{"model_type", "mixtral"}, {"num_key_value_heads", 2}, {"num_experts", 4}, {"num_experts_per_tok", 5}})),
                HasSubstr("experts per token = 5 is more than experts = 4"));
    // Each size is allowed by itself; together they are no model.
    EXPECT_THAT(refusal(llama({{"model_type", "mixtral"},
                               {"num_key_value_heads", 2},
                               {"num_hidden_layers", 65536},
                               {"hidden_size", 1048576},
                               {"head_dim", 128},
                               {"num_experts", 65536},
                               {"num_experts_per_tok", 2},
                               {"intermediate_size", 16777216}})),
                HasSubstr("check layers, hidden size, experts and vocabulary"));
}

TEST(HuggingFace, SurvivesAnyValueInAnyField) {
    const std::vector<Json> junk{nullptr,
                                 true,
                                 -1,
                                 0,
                                 1,
                                 3,
                                 65537,
                                 9223372036854775807,
                                 18446744073709551615ULL,
                                 1e300,
                                 -0.5,
                                 "",
                                 "silu",
                                 std::string(1000, 'x'),
                                 Json::array(),
                                 Json::array({1, "a", nullptr}),
                                 Json::object(),
                                 Json::object({{"a", 1}})};
    int refused = 0, accepted = 0;
    for (const auto& file : embedded_models()) {
        if (file.name != "deepseek-v3" && file.name != "gpt-oss-20b" && file.name != "tiny-gpt" && file.name != "qwen2-57b-a14b") continue;
        const Json config = Json::parse(file.text);
        std::vector<std::string> fields{"layer_types", "moe_layer_freq", "mlp_only_layers", "text_config", "rope_parameters", "head_dim"};
        for (const auto& item : config.items()) fields.push_back(item.key());
        for (const auto& field : fields) {
            for (const auto& value : junk) {
                Json damaged = config;
                damaged[field] = value;
                try {
                    (void)total_parameters(read(damaged));
                    ++accepted;
                } catch (const ConfigError& error) {
                    EXPECT_FALSE(error.problems().empty());
                    ++refused;
                }
            }
        }
    }
    EXPECT_GT(refused, 100);
    EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace mgplan::formats::hugging_face_test
