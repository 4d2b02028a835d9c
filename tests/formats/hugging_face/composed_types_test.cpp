// Types whose layers are composed, and those that norms, order and multipliers tell from a llama.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/json/model_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "tests/formats/hugging_face/class_configs.hpp"

namespace mgplan::formats::composed_types_test {
namespace {

using class_configs::class_config;
using class_configs::class_counts;
using class_configs::Json;
using class_configs::message_of;
using class_configs::model_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// Nemotron-H's fields at small sizes; `pattern` as its files write it.
Json nemotron_h(const std::string& pattern) {
    return {{"model_type", "nemotron_h"},
            {"hybrid_override_pattern", pattern},
            {"hidden_size", 64},
            {"intermediate_size", 128},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"head_dim", 16},
            {"vocab_size", 100},
            {"mamba_num_heads", 8},
            {"mamba_head_dim", 16},
            {"n_groups", 2},
            {"ssm_state_size", 16},
            {"conv_kernel", 4},
            {"n_routed_experts", 4},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 32},
            {"moe_shared_expert_intermediate_size", 48}};
}

TEST(ClassCounts, EqualTheParametersThatTransformersBuilds) {
    const Json types = class_counts();
    EXPECT_GE(types.size(), 100U);
    for (const auto& [name, entry] : types.items())
        EXPECT_EQ(total_parameters(model_of(entry.at("config"))), entry.at("parameters").get<std::int64_t>()) << name;
}

TEST(ClassCounts, SurviveTheWayThroughJson) {
    const Json counts = class_counts();
    for (const auto& [name, entry] : counts.items()) {
        const ModelSpec model = model_of(entry.at("config"));
        EXPECT_EQ(model_from_json(model_to_json(model), "model"), model) << name;
    }
}

TEST(ComposedTypes, SizesThatLeaveNothingAreRefusedByTheirField) {
    const auto refusal = [](const std::string& field, int value) {
        Json config = nemotron_h("M*-EM");
        config[field] = value;
        return message_of([&] { (void)model_of(config); });
    };
    EXPECT_THAT(refusal("ssm_state_size", 0), HasSubstr("ssm_state_size = 0 is out of range; give a whole number from 1"));
    EXPECT_THAT(refusal("num_experts_per_tok", 0), HasSubstr("num_experts_per_tok = 0 leaves a token without experts; give 1 to 4"));
    EXPECT_THAT(refusal("num_experts_per_tok", 5), HasSubstr("num_experts_per_tok = 5 is more than the 4 experts"));
    EXPECT_THAT(refusal("n_shared_experts", 0), HasSubstr("n_shared_experts = 0 is out of range"));
    EXPECT_THAT(refusal("moe_intermediate_size", 0),
                HasSubstr("layers of kind 'moe' would have a tensor experts.first.weight with a size of 0; give sizes that make it 1 to"));
}

TEST(ComposedTypes, LayersWithMoreThanATypedOneAreCountedAmongOthers) {
    Json config = nemotron_h("M*-EM");
    config["mlp_bias"] = true;  // of shared experts too, which typed ones lack
    const ModelSpec model = model_of(config);
    ASSERT_EQ(model.kinds.size(), 4U);
    EXPECT_TRUE(model.kinds[0].layer.mixer);
    EXPECT_TRUE(model.kinds[2].layer.feed_forward);
    EXPECT_FALSE(model.kinds[3].layer.counted.empty());
    EXPECT_EQ(model.counted.size(), 1U) << "the final norm";
}

TEST(ComposedTypes, LayersFollowTheirPattern) {
    const ModelSpec model = model_of(nemotron_h("M*-EM"));
    EXPECT_EQ(model.layers, 5);
    EXPECT_THAT(model.kind_of_layer, ElementsAre(0, 1, 2, 3, 0));
    EXPECT_EQ(model.kinds.at(0).name, "mamba2");
    EXPECT_LT(active_parameters(model), total_parameters(model)) << "two of four experts";
    // Two more experts for each token: two matrices of 64 x 32 each.
    Json all = nemotron_h("M*-EM");
    all["num_experts_per_tok"] = 4;
    EXPECT_EQ(active_parameters(model_of(all)) - active_parameters(model), 2 * 2 * 64 * 32);
    EXPECT_THAT(message_of([] { (void)model_of(nemotron_h("M*?")); }), HasSubstr("hybrid_override_pattern holds '?'"));
    Json longer = nemotron_h("M*-");
    longer["num_hidden_layers"] = 4;
    EXPECT_THAT(message_of([&] { (void)model_of(longer); }), HasSubstr("hybrid_override_pattern has 3 entries for 4 layers"));
}

TEST(ComposedTypes, NameALayerThatTheirTypeDoesNotHave) {
    const Json types = class_counts();
    for (const auto* name : {"qwen3_next", "granitemoehybrid"}) {
        Json config = types.at(name).at("config");
        config["num_hidden_layers"] = 2;
        config["layer_types"] = {"full_attention", "foo"};
        EXPECT_THAT(message_of([&] { (void)model_of(config); }), HasSubstr("layer_types holds 'foo', which no layer of this type is"))
            << name;
    }
}

TEST(ComposedTypes, AreCountedAndNothingElseWhereNoLayerComputesAPart) {
    Json biased = nemotron_h("M*-E");
    biased["use_bias"] = true;
    const ModelSpec model = model_of(biased);
    EXPECT_THAT(
        message_of([&] { refuse_counted_only(model, "--model: x"); }),
        HasSubstr("--model: x: model_type 'nemotron_h' is counted and nothing else, for no layer here computes its layers (mamba2)"));
    EXPECT_THAT(message_of([&] { (void)chunk_parameters(model, {}, {}); }), HasSubstr("is counted and nothing else"));
    EXPECT_EQ(message_of([] { refuse_counted_only(ModelSpec{}, "x"); }), "accepted");
}

TEST(ComposedTypes, ShortConvolutionsFollowTheFieldsOfTheirClass) {
    // LiquidAI/LFM2-1.2B: two thirds of block_ff_dim, rounded up to 256; attention in the layers that are listed; 1,170,340,608 parameters.
    const Json published = {{"model_type", "lfm2"},
                            {"vocab_size", 65536},
                            {"hidden_size", 2048},
                            {"block_ff_dim", 12288},
                            {"num_hidden_layers", 16},
                            {"num_attention_heads", 32},
                            {"num_key_value_heads", 8},
                            {"block_multiple_of", 256},
                            {"block_auto_adjust_ff_dim", true},
                            {"conv_L_cache", 3},
                            {"conv_bias", false},
                            {"block_ffn_dim_multiplier", 1.0},
                            {"tie_embedding", true},
                            {"rope_theta", 1000000.0},
                            {"norm_eps", 1e-05},
                            {"full_attn_idxs", {2, 5, 8, 10, 12, 14}}};
    const ModelSpec model = model_of(published);
    EXPECT_EQ(total_parameters(model), 1'170'340'608);
    EXPECT_EQ(model.kind_of_layer, (std::vector<std::uint16_t>{0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
    EXPECT_FALSE(is_counted_only(model));
    Json other = published;
    other["tie_embedding"] = false;
    EXPECT_EQ(total_parameters(model_of(other)), 1'170'340'608 + 65536 * 2048) << "tie_embedding stands before the class default";
    other = published;
    other["intermediate_size"] = 99;
    other["block_auto_adjust_ff_dim"] = false;
    EXPECT_EQ(total_parameters(model_of(other)), 1'170'340'608 + 16 * 3 * 2048 * (12288 - 8192)) << "as block_ff_dim says";
    other["conv_bias"] = true;
    EXPECT_TRUE(is_counted_only(model_of(other)));
}

TEST(ComposedTypes, MultipliersOfInputsBecomeThoseOfOutputs) {
    // tiiuae/Falcon-H1-0.5B-Base, its multipliers in round numbers; 521,411,104 parameters (huggingface.co, safetensors).
    const Json published = {{"model_type", "falcon_h1"},
                            {"vocab_size", 32784},
                            {"hidden_size", 1024},
                            {"intermediate_size", 2048},
                            {"num_hidden_layers", 36},
                            {"num_attention_heads", 8},
                            {"num_key_value_heads", 2},
                            {"head_dim", 64},
                            {"mamba_d_ssm", 1536},
                            {"mamba_n_heads", 24},
                            {"mamba_n_groups", 1},
                            {"mamba_d_state", 128},
                            {"tie_word_embeddings", false},
                            {"embedding_multiplier", 5.5},
                            {"lm_head_multiplier", 0.04},
                            {"attention_in_multiplier", 2.0},
                            {"key_multiplier", 0.5},
                            {"attention_out_multiplier", 0.75},
                            {"ssm_in_multiplier", 1.25},
                            {"ssm_out_multiplier", 0.4},
                            {"ssm_multipliers", {0.8, 1.0, 0.6, 2.0, 0.4}},
                            {"mlp_multipliers", {0.9, 0.3}}};
    const ModelSpec model = model_of(published);
    EXPECT_EQ(total_parameters(model), 521'411'104);
    EXPECT_FALSE(is_counted_only(model));
    EXPECT_TRUE(model.left_out.empty());
    EXPECT_EQ(model.embedding_multiplier, 5.5);
    EXPECT_EQ(model.logit_multiplier, 0.04);
    EXPECT_DOUBLE_EQ(model.attention_multiplier, 2.0 * 2.0 * 0.5 / 8) << "of queries and keys, over the root of a head's 64 values";
    const BranchMultipliers expected{.attention_output = 1.5,
                                     .state_output = 0.4,
                                     .state_gate = 1,
                                     .state_input = 1.25,
                                     .state_write = 0.75,
                                     .state_read = 2.5,
                                     .state_step = 0.5,
                                     .mlp_gate = 0.9,
                                     .mlp_output = 0.3};
    EXPECT_EQ(model.branch_multipliers, expected);
    EXPECT_EQ(model_from_json(model_to_json(model), "model"), model);
    Json other = published;
    other["ssm_multipliers"] = {1, 2, 3};
    EXPECT_THAT(message_of([&] { (void)model_of(other); }), HasSubstr("ssm_multipliers is no list of 5 numbers above 0"));
    other = published;
    other["mamba_rms_norm"] = true;
    EXPECT_THAT(model_of(other).left_out, ElementsAre(HasSubstr("mamba_norm_before_gate")));
    other["mamba_norm_before_gate"] = false;
    EXPECT_TRUE(model_of(other).left_out.empty());
    Json alone = model_to_json(model);
    alone.erase("layer_kinds");
    alone.erase("beside_layers");
    EXPECT_THAT(message_of([&] { (void)model_from_json(alone, "model"); }), HasSubstr("branch_multipliers belong to layers of attention"));
}

TEST(ComposedTypes, KimiLinearAttendsInTheLayersThatAreListed) {
    Json config = class_config("kimi_linear");
    config.erase("layer_types");
    config.erase("mlp_layer_types");
    config["num_hidden_layers"] = 6;
    const auto names = [&] {
        const ModelSpec model = model_of(config);
        std::vector<std::string> all;
        for (const auto kind : model.kind_of_layer) all.push_back(model.kinds.at(kind).name.substr(0, 6));
        return all;
    };
    config.erase("linear_attn_config");
    EXPECT_THAT(names(), ElementsAre("kimi_d", "kimi_d", "kimi_d", "kimi_d", "latent", "kimi_d")) << "the default of the class";
    config["linear_attn_config"] = {{"full_attn_layers", {2, 6}}, {"kda_layers", {1, 3, 4, 5}}};
    EXPECT_THAT(names(), ElementsAre("kimi_d", "latent", "kimi_d", "kimi_d", "kimi_d", "latent")) << "counted from 1";
    const ModelSpec model = model_of(config);
    EXPECT_EQ(model.position, PositionEmbedding::none);
    ASSERT_TRUE(model.moe && model.mla);
    EXPECT_TRUE(model.moe->score == RouterScore::sigmoid && model.moe->expert_bias);
    EXPECT_EQ(model.mla->norm_epsilon, 1e-6);
    EXPECT_EQ(model_from_json(model_to_json(model), "model"), model);
}

TEST(ComposedTypes, MiniMaxIsReadByTheFieldsOfBothItsForms) {
    Json config = class_config("minimax");
    const ModelSpec plain = model_of(config);
    EXPECT_EQ(plain.normed_residual, NormedResidual{});
    config["full_attn_alpha_factor"] = 3.5;
    config["mlp_beta_factor"] = 0.5;
    EXPECT_EQ(model_of(config).normed_residual, (NormedResidual{.attention = {.path = 3.5}, .mlp = {.branch = 0.5}}));
    // As MiniMax's own code names them, beside the weights.
    Json own = class_config("minimax");
    own["model_type"] = "minimax_m1";
    own.erase("layer_types");
    own.erase("linear_attn_alpha_factor");
    own["num_hidden_layers"] = 3;
    own["attn_type_list"] = {0, 0, 1};
    own["rotary_dim"] = model_of(own).head_dim / 2;
    own["postnorm"] = true;
    own["layernorm_linear_attention_alpha"] = 3.5;
    const ModelSpec model = model_of(own);
    EXPECT_THAT(model.kind_of_layer, ElementsAre(0, 0, 1));
    EXPECT_EQ(model.kinds.at(1).name, "attention+moe");
    EXPECT_EQ(model.rotary_fraction, 0.5);
    EXPECT_EQ(model.normed_residual, (NormedResidual{.state = {.path = 3.5}}));
    EXPECT_EQ(model_from_json(model_to_json(model), "model"), model);
    own["postnorm"] = false;
    own["shared_intermediate_size"] = 16;
    own["hidden_act"] = "gelu";
    own["attn_type_list"] = {0, 1};
    const std::string refusal = message_of([&] { (void)model_of(own); });
    for (const auto* part : {"postnorm = false", "shared_intermediate_size is stated", "hidden_act is another than silu",
                             "attn_type_list has 2 entries for 3 layers"})
        EXPECT_THAT(refusal, HasSubstr(part));
}

/// facebook/opt-350m (config.json): 331,196,416 parameters, of which the table of words is half as wide as the layers.
TEST(ComposedTypes, OptMayHaveWordsOfAnotherWidthAndNormsBehindAdditions) {
    Json config = {{"model_type", "opt"},
                   {"vocab_size", 50272},
                   {"hidden_size", 1024},
                   {"num_hidden_layers", 24},
                   {"num_attention_heads", 16},
                   {"ffn_dim", 4096},
                   {"max_position_embeddings", 2048},
                   {"activation_function", "relu"},
                   {"do_layer_norm_before", false},
                   {"word_embed_proj_dim", 512}};
    const ModelSpec model = model_of(config);
    EXPECT_EQ(total_parameters(model), 331'196'416);
    EXPECT_TRUE(is_counted_only(model));
    EXPECT_THAT(message_of([&] { refuse_counted_only(model, "x"); }), HasSubstr("maps between words and layers of other widths"));
    EXPECT_EQ(model_from_json(model_to_json(model), "test"), model);
    config["word_embed_proj_dim"] = 1024;  // no maps, and words as wide as layers
    EXPECT_EQ(total_parameters(model_of(config)) - 331'196'416, 50272 * 512 - 2 * 1024 * 512);
    EXPECT_TRUE(is_counted_only(model_of(config)));
    config["do_layer_norm_before"] = true;  // a norm behind the last layer
    EXPECT_EQ(total_parameters(model_of(config)) - 331'196'416, 50272 * 512 - 2 * 1024 * 512 + 2 * 1024);
    EXPECT_FALSE(is_counted_only(model_of(config)));
    config["_remove_final_layer_norm"] = true;
    EXPECT_EQ(total_parameters(model_of(config)) - 331'196'416, 50272 * 512 - 2 * 1024 * 512);
    config["model_type"] = "gpt2";
    config["word_embed_proj_dim"] = 512;
    EXPECT_THAT(message_of([&] { (void)model_of(config); }), HasSubstr("word_embed_proj_dim differs from hidden_size = 1024"));
}

/// configuration_deepseek_v2.py leaves num_experts_per_tok None, which a file made of its class states as null.
TEST(ComposedTypes, ANullNumberOfChosenExpertsIsCountedAlone) {
    Json config = {{"model_type", "deepseek_v2"}, {"num_experts_per_tok", nullptr}, {"hidden_size", 4096},       {"num_hidden_layers", 32},
                   {"num_attention_heads", 32},   {"vocab_size", 102400},           {"intermediate_size", 11008}};
    const Job job = read_hugging_face(config, "test", "config.json");
    EXPECT_EQ(total_parameters(job.model), 38'612'307'968);
    EXPECT_EQ(active_parameters(job.model), 38'612'307'968);
    EXPECT_TRUE(is_counted_only(job.model));
    EXPECT_THAT(job.assumptions, testing::Contains(HasSubstr("num_experts_per_tok is null")));
    EXPECT_THAT(message_of([&] { refuse_counted_only(job.model, "x"); }), HasSubstr("no choice of experts"));
    config.erase("num_experts_per_tok");
    EXPECT_THAT(message_of([&] { (void)model_of(config); }), HasSubstr("'num_experts_per_tok'"));
    config["num_experts_per_tok"] = 6;
    EXPECT_FALSE(is_counted_only(model_of(config)));
}

TEST(ComposedTypes, AreComputedWhereTheirPartsSayEverything) {
    const Json types = class_counts();
    for (const auto* name : {"mamba2", "nemotron_h", "bamba", "granitemoehybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lfm2",
                             "falcon_h1", "kimi_linear", "minimax", "mamba", "falcon_mamba", "jamba", "recurrent_gemma", "gemma4_text"}) {
        const ModelSpec model = model_of(types.at(name).at("config"));
        EXPECT_FALSE(is_counted_only(model)) << name;
        EXPECT_EQ(message_of([&] { refuse_counted_only(model, "x"); }), "accepted") << name;
        // The layers of lfm2's default config are all attention, which fields describe.
        EXPECT_THAT(message_of([&] { refuse_unmeasured(model, "--model: x"); }),
                    HasSubstr(model.kinds.empty() ? "accepted" : "are not measured yet"))
            << name;
        EXPECT_TRUE(model.left_out.empty()) << name;
        // Every tensor that is counted is one that layers have, with a vocabulary that needs no padding.
        ModelSpec unpadded = model;
        unpadded.vocab_divisor = 1;
        std::int64_t count = 0;
        StageChunk whole;
        whole.embedding = whole.loss = true;
        whole.decoders = model.layers;
        for (const Parameter& parameter : chunk_parameters(unpadded, {}, whole)) count += parameter.count();
        EXPECT_EQ(count, total_parameters(unpadded)) << name;
    }
    // Types whose parts were put together for their count alone say neither activation nor positions.
    for (const auto& [name, entry] : types.items()) {
        const ModelSpec model = model_of(entry.at("config"));
        if (model.kinds.empty() || is_counted_only(model)) continue;
        EXPECT_THAT(name, testing::AnyOf("mamba2", "nemotron_h", "bamba", "granitemoehybrid", "qwen3_next", "qwen3_5", "qwen3_5_text",
                                         "qwen3_5_moe", "qwen3_5_moe_text", "lfm2", "lfm2_moe", "falcon_h1", "kimi_linear", "minimax",
                                         "olmo_hybrid", "mamba", "falcon_mamba", "jamba", "recurrent_gemma", "gemma4", "gemma4_text",
                                         "gemma4_unified", "gemma4_unified_text", "deepseek_v4"));
    }
    Json latent = nemotron_h("M*-E");
    latent["moe_latent_size"] = 16;
    EXPECT_EQ(model_of(latent).moe->latent, 16);
    EXPECT_FALSE(is_counted_only(model_of(latent)));
    const ModelSpec nemotron = model_of(nemotron_h("M*-E"));
    EXPECT_EQ(nemotron.position, PositionEmbedding::none);
    EXPECT_EQ(nemotron.activation, Activation::squared_relu);
    ASSERT_TRUE(nemotron.moe.has_value());
    EXPECT_TRUE(nemotron.moe->score == RouterScore::sigmoid && nemotron.moe->expert_bias);
    EXPECT_THAT(nemotron.moe_layers, ElementsAre(false, false, false, true));
    Json limited = nemotron_h("M");
    limited["time_step_limit"] = {0.001, 0.1};
    EXPECT_THAT(model_of(limited).left_out, ElementsAre("limits of Mamba-2's steps (time_step_limit)"));
}

TEST(ArrangedTypes, HaveTheNormsAndTheOrderOfTheirClasses) {
    const Json types = class_counts();
    const auto read = [&](const std::string& name) { return model_of(types.at(name).at("config")); };
    const ModelSpec gemma3 = read("gemma3_text");
    EXPECT_TRUE(gemma3.pre_norms && gemma3.post_norms && gemma3.qk_norm);
    EXPECT_EQ(gemma3.window_rotary_base, 10'000);
    EXPECT_EQ(gemma3.rotary_base, 1e6);
    const ModelSpec olmo2 = read("olmo2");
    EXPECT_FALSE(olmo2.pre_norms);
    EXPECT_TRUE(olmo2.post_norms && olmo2.qk_norm_full_width);
    EXPECT_EQ(read("gpt_neox").order, LayerOrder::parallel);
    const ModelSpec cohere2 = read("cohere2");
    EXPECT_EQ(cohere2.order, LayerOrder::parallel_shared_norm);
    EXPECT_FALSE(cohere2.norm_bias);
    EXPECT_EQ(cohere2.logit_multiplier, 0.0625);
    EXPECT_THAT(cohere2.rotary_layers, ElementsAre(true, true, true, false, true)) << "windows alone are rotated";
    EXPECT_THAT(read("exaone4").rotary_layers, ElementsAre(true, true, true, false, true));
    EXPECT_EQ(read("minicpm3").embedding_multiplier, 12);
    const ModelSpec falcon = read("falcon");
    EXPECT_EQ(falcon.order, LayerOrder::parallel_shared_norm);
    EXPECT_EQ(falcon.activation, Activation::gelu_exact);
    EXPECT_TRUE(read("gptj").output_bias && read("gptj").rotary_interleaved);
}

TEST(ArrangedTypes, NameWhatTheyLeaveOutAndRefuseWhatTheyDoNotHave) {
    const auto alibi = ElementsAre("attention scores lowered by distance (ALiBi)");
    Json falcon = class_config("falcon");
    falcon["alibi"] = true;
    EXPECT_THAT(model_of(falcon).left_out, alibi);
    EXPECT_EQ(model_of(falcon).position, PositionEmbedding::none);
    EXPECT_THAT(model_of(class_config("mpt")).left_out, alibi);
    falcon["parallel_attn"] = false;
    EXPECT_EQ(model_of(falcon).order, LayerOrder::sequential);
    falcon["new_decoder_architecture"] = true;
    EXPECT_THAT(message_of([&] { (void)model_of(falcon); }), HasSubstr("parallel_attn = false with new_decoder_architecture"));
}

TEST(ArrangedTypes, ErniesMixturesHaveBiasesOfTheirChoiceThatCount) {
    Json config = class_config("ernie4_5_moe");
    const ModelSpec model = model_of(config);
    ASSERT_TRUE(model.moe.has_value());
    EXPECT_TRUE(model.moe->score == RouterScore::softmax && model.moe->expert_bias);
    EXPECT_FALSE(model.moe_layers.front());
    EXPECT_FALSE(is_counted_only(model));
    ModelSpec other = model;
    other.counted.front().shape.front() += 1;
    EXPECT_TRUE(is_counted_only(other)) << "biases of other experts";
    config["use_bias"] = true;
    EXPECT_THAT(message_of([&] { (void)model_of(config); }), HasSubstr("use_bias = true is not described"));
}

}  // namespace
}  // namespace mgplan::formats::composed_types_test
