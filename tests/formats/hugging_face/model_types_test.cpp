#include "formats/hugging_face/model_types.hpp"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "plan/json/model_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::model_types_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::HasSubstr;

Job read(const Json& json, const std::string& assume = "") {
    return read_hugging_face(json, "test", "config.json", assume);
}

std::string refusal(const Json& json, const std::string& assume = "") {
    try {
        (void)read(json, assume);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

/// Sizes that every type has; fields of `more` replace its own.
Json sizes(const std::string& type, const Json& more = Json::object()) {
    Json json = {{"model_type", type},       {"num_hidden_layers", 4},   {"hidden_size", 64}, {"intermediate_size", 128},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 16},    {"vocab_size", 100}};
    for (const auto& item : more.items()) json[item.key()] = item.value();
    return json;
}

TEST(ModelTypes, DefaultsAreObjectsOfFieldsAndNamesStandOnce) {
    std::set<std::string_view> names;
    for (const auto& type : model_types()) {
        EXPECT_TRUE(names.insert(type.name).second) << type.name;
        EXPECT_TRUE(Json::parse(type.defaults).is_object()) << type.name;
    }
    EXPECT_EQ(find_model_type("qwen2_5_vl")->name, "qwen2_5_vl_text");
    EXPECT_EQ(find_model_type("nobody"), nullptr);
}

TEST(ModelTypes, EveryTypeIsReadFromItsClassDefaultsInAMultimodalFile) {
    // internlm, megatron_gpt and grok-1 have no class in transformers whose sizes would stand in the table; three classes leave out
    // a number of experts, or sizes that divide.
    // Others derive sizes from further fields, or have them in lists and nested objects.
    const std::set<std::string_view> without_sizes{
        "internlm", "internlm2",   "megatron_gpt", "grok-1",         "deepseek_v2",        "dots1",
        "glm4_moe", "mpt",         "dbrx",         "chatglm",        "gemma3n_text",       "nemotron_h",
        "mimo",     "baichuan",    "bailing_moe",  "bailing_moe_v2", "deepseek_ocr2_text", "olmo_hybrid",
        "zamba2",   "kimi_linear", "mellum",       "kolibri1",       "qwen4_exp_text",     "cohere_compass_text"};
    for (const auto& type : model_types()) {
        const Json file = {{"model_type", "seeing"}, {"text_config", {{"model_type", type.name}}}};
        if (without_sizes.contains(type.name)) continue;
        const Job job = read(file);
        EXPECT_GT(total_parameters(job.model), 10'000'000) << type.name;
        EXPECT_THAT(job.assumptions, Contains(HasSubstr("class defaults of"))) << type.name;
    }
    // vicuna-7b with the vocabulary of llava-1.5 (its config.json states no other size): llama-2-7b with 64 rows more.
    const Json llava = {{"model_type", "llava"}, {"text_config", {{"model_type", "llama"}, {"vocab_size", 32064}}}};
    EXPECT_EQ(total_parameters(read(llava).model), 6'738'415'616 + 2 * 64 * 4096);
    EXPECT_EQ(read({{"model_type", "llava"}, {"text_config", {{"vocab_size", 32064}}}}).model.type, "llama");
}

TEST(ModelTypes, AFileOfItsOwnMustStateItsSizes) {
    const std::string text = refusal({{"model_type", "llama"}, {"hidden_size", 64}});
    EXPECT_THAT(text, HasSubstr("'num_hidden_layers' (or n_layer or num_layers or n_layers) is missing"));
    EXPECT_THAT(text, HasSubstr("'intermediate_size' (or "));
    EXPECT_THAT(text, testing::Not(HasSubstr("'hidden_size'")));
}

TEST(ModelTypes, LeaveToTheirClassesWhatFilesDoNotSay) {
    // gemma-7b's published config.json has no tie_word_embeddings; its card says 8.54 B parameters.
    const Job gemma = read({{"model_type", "gemma"},
                            {"hidden_size", 3072},
                            {"intermediate_size", 24576},
                            {"num_hidden_layers", 28},
                            {"num_attention_heads", 16},
                            {"num_key_value_heads", 16},
                            {"head_dim", 256},
                            {"vocab_size", 256000}});
    EXPECT_TRUE(gemma.model.tied_embeddings);
    EXPECT_EQ(total_parameters(gemma.model), 8'537'680'896);
    EXPECT_EQ(gemma.model.norm_epsilon, 1e-6);
    EXPECT_EQ(read(sizes("mistral")).model.sliding_window, 4096);
    EXPECT_EQ(read(sizes("mistral", {{"sliding_window", nullptr}})).model.sliding_window, 0) << "null is no default";
    EXPECT_EQ(read(sizes("qwen3", {{"head_dim", nullptr}})).model.head_dim, 16);
    EXPECT_EQ(read(sizes("nemotron")).model.init_deviation, 0.0134);
    EXPECT_FALSE(read(sizes("starcoder2")).model.gated_mlp);
    EXPECT_TRUE(read(sizes("starcoder2")).model.mlp_bias);
    EXPECT_EQ(read(sizes("gpt_bigcode")).model.kv_heads, 1) << "multi_query";
    EXPECT_EQ(read(sizes("arcee")).model.activation, Activation::squared_relu);
    EXPECT_EQ(read(sizes("olmoe")).model.qk_norm_full_width, true);
    EXPECT_EQ(read(sizes("minimax_m2", {{"rotary_dim", 8}})).model.rotary_fraction, 0.5);
}

TEST(ModelTypes, PutBiasesWhereTheirClassesDo) {
    const auto biases = [](const std::string& type, const Json& more) {
        const ModelSpec model = read(sizes(type, more)).model;
        return std::vector<bool>{model.qkv_bias, model.attention_output_bias, model.mlp_bias};
    };
    const Json on = {{"attention_bias", true}};
    EXPECT_EQ(biases("llama", on), (std::vector<bool>{true, true, false}));
    EXPECT_EQ(biases("glm4_moe", on), (std::vector<bool>{true, false, false}));
    EXPECT_EQ(biases("mistral", on), (std::vector<bool>{false, false, false})) << "the class has no such field";
    EXPECT_EQ(biases("seed_oss", {{"attention_out_bias", true}}), (std::vector<bool>{true, true, false}));
    EXPECT_EQ(biases("stablelm", {{"use_qkv_bias", true}}), (std::vector<bool>{true, false, false}));
    EXPECT_EQ(biases("internlm2", {{"bias", false}}), (std::vector<bool>{false, false, false}));
    EXPECT_THAT(refusal(sizes("youtu", on)), HasSubstr("attention_bias = true puts biases on the projections to the latents"));
    const ModelSpec latent = read(sizes("deepseek_v3", on)).model;
    EXPECT_TRUE(is_counted_only(latent));
    EXPECT_EQ(total_parameters(latent) - total_parameters(read(sizes("deepseek_v3")).model), 4 * (1536 + 512 + 64 + 64))
        << "of both latents, the part of the keys that is turned, and the output";
}

TEST(ModelTypes, GiveWindowsToTheLayersThatHaveThem) {
    const Json windows = {{"use_sliding_window", true}, {"sliding_window", 32}};
    const auto qwen = [&](std::int64_t from) {
        Json json = sizes("qwen2", windows);
        json["max_window_layers"] = from;
        return json;
    };
    EXPECT_EQ(read(qwen(4)).model.sliding_window, 0) << "no layer from the fourth on";
    EXPECT_EQ(read(qwen(0)).model.sliding_window, 32);
    EXPECT_EQ(read(qwen(2)).model.window_layers, (std::vector<bool>{false, false, true, true}));
    EXPECT_EQ(read(sizes("gpt_oss", {{"sliding_window", 32}})).model.full_attention_every, 2);
    EXPECT_EQ(read(sizes("llama", {{"sliding_window", 32}})).model.sliding_window, 0) << "the class knows none";
    EXPECT_THAT(read(sizes("llama", {{"sliding_window", 32}})).unused_fields, Contains("sliding_window"));
}

TEST(ModelTypes, ReadRoutersAsTheirClassesRoute) {
    const MoeSpec v3 = *read(sizes("deepseek_v3", {{"n_group", 1}})).model.moe;
    EXPECT_EQ(v3.routed_scaling, 2.5);
    EXPECT_TRUE(v3.normalize_top_k && v3.expert_bias);
    EXPECT_EQ(v3.sequence_auxiliary_loss, 0.001);
    EXPECT_EQ(v3.auxiliary_loss, 0);
    const MoeSpec qwen3 = *read(sizes("qwen3_moe")).model.moe;
    EXPECT_EQ(qwen3.auxiliary_loss, 0.001);
    EXPECT_FALSE(qwen3.normalize_top_k) << "norm_topk_prob of the class";
    EXPECT_TRUE(read(sizes("mixtral")).model.moe->normalize_top_k);
    EXPECT_THAT(refusal(sizes("llama", {{"num_experts", 8}})),
                HasSubstr("num_experts is stated for model_type 'llama', which has no experts"));
    EXPECT_EQ(refusal(sizes("llama", {{"num_experts", 0}})), "accepted");
}

TEST(ModelTypes, NameWhatOfTheNetworkTheyLeaveOut) {
    const Json multipliers = {
        {"embedding_multiplier", 12}, {"attention_multiplier", 0.25}, {"residual_multiplier", 0.22}, {"logits_scaling", 16}};
    const ModelSpec granite = read(sizes("granite", multipliers)).model;
    EXPECT_EQ(granite.embedding_multiplier, 12);
    EXPECT_EQ(granite.residual_multiplier, 0.22);
    EXPECT_EQ(granite.logit_multiplier, 1 / 16.0);
    EXPECT_EQ(granite.attention_multiplier, 0) << "0.25 is 1 / sqrt(head size)";
    EXPECT_TRUE(granite.left_out.empty());
    EXPECT_EQ(read(sizes("smollm3")).model.rotary_layers, (std::vector<bool>{true, true, true, false}));
    EXPECT_TRUE(read(sizes("llama")).model.left_out.empty());
    EXPECT_EQ(read(sizes("gemma")).model.embedding_multiplier, 8);
    const ModelSpec gemma2 = read(sizes("gemma2", {{"final_logit_softcapping", 30.0}, {"attn_logit_softcapping", 50.0}})).model;
    EXPECT_EQ(gemma2.logit_softcap, 30);
    EXPECT_EQ(gemma2.attention_softcap, 50);
    EXPECT_THAT(features_not_computed(gemma2), testing::IsEmpty());
    EXPECT_EQ(read(sizes("hyperclovax", {{"logits_scaling", 4.0}})).model.logit_multiplier, 4) << "its class multiplies";
    const ModelSpec stablelm = read(sizes("stablelm", {{"qk_layernorm", true}})).model;
    EXPECT_TRUE(stablelm.qk_norm_per_head && stablelm.norm_bias) << "norms of heads have no biases, those of the stream have";
    EXPECT_THAT(features_not_computed(stablelm), testing::IsEmpty());
}

TEST(ModelTypes, RefuseFieldsThatChangeTheNetwork) {
    EXPECT_THAT(refusal(sizes("llama", {{"use_parallel_residual", true}})),
                HasSubstr("use_parallel_residual = true changes the network, and no layer of model_type 'llama' here has it"));
    EXPECT_EQ(read(sizes("stablelm", {{"use_parallel_residual", true}})).model.order, LayerOrder::parallel_shared_norm);
    EXPECT_EQ(refusal(sizes("stablelm", {{"use_parallel_residual", false}, {"qk_layernorm", false}})), "accepted");
    EXPECT_THAT(refusal(sizes("olmoe", {{"clip_qkv", 8.0}})), HasSubstr("clip_qkv = 8.0"));
    EXPECT_THAT(refusal(sizes("llama", {{"final_logit_softcapping", 30.0}})), HasSubstr("final_logit_softcapping"));
    EXPECT_EQ(refusal(sizes("llama", {{"final_logit_softcapping", nullptr}, {"logit_scale", 1}})), "accepted");
    EXPECT_THAT(read(sizes("llama", {{"tomorrow", 1}, {"_private", 1}, {"nothing", nullptr}})).unused_fields,
                testing::ElementsAre("tomorrow"));
}

TEST(ModelTypes, AnUnknownTypeIsRefusedByNameWithTheNearest) {
    const Json file = sizes("llamoid", {{"final_logit_softcapping", 30.0}, {"torch_dtype", "bfloat16"}, {"bos_token_id", 1}});
    const std::string text = refusal(file);
    EXPECT_THAT(text, HasSubstr("model_type 'llamoid' is not known (nearest: llama"));
    EXPECT_THAT(text, HasSubstr("no layer here explains final_logit_softcapping; --assume llama"));
    EXPECT_THAT(refusal(sizes("ev\033[31mil\007")), HasSubstr("'ev?[31mil?'"));
    EXPECT_THAT(refusal(sizes(std::string(100'000, 'x'))).size(), testing::Lt(1000U));
    EXPECT_THAT(refusal(sizes("gemma5")), HasSubstr("'gemma5' is not known (nearest: gemma"));
    Json none = sizes("");
    EXPECT_THAT(refusal(none), HasSubstr("field 'model_type' is missing"));
    none["architectures"] = {"MistralForCausalLM"};
    EXPECT_EQ(read(none).model.type, "mistral");
    none["model_type"] = "mystery";
    EXPECT_THAT(refusal(none), HasSubstr("'mystery' is not known")) << "the type decides, not the class";
}

TEST(ModelTypes, AnAssumedArchitectureIsCarried) {
    const Job job = read(sizes("llamoid"), "llama");
    EXPECT_EQ(job.model.assumed_architecture, "llama");
    EXPECT_EQ(job.model.type, "llamoid");
    EXPECT_EQ(total_parameters(job.model), total_parameters(read(sizes("llama")).model));
    EXPECT_THAT(job.assumptions, Contains("architecture llamoid is not known, read like llama"));
    EXPECT_THAT(job.notes, Contains(HasSubstr("model_type llamoid is not known and read as llama")));
    EXPECT_TRUE(read(sizes("mistral"), "llama").model.assumed_architecture.empty()) << "its type is known";
    EXPECT_THAT(refusal(sizes("bert"), "llama"), HasSubstr("'bert' is no decoder-only transformer"));
    EXPECT_THAT(refusal(sizes("llamoid"), "gpt9"), HasSubstr("--assume = 'gpt9' is not known; use llama"));
}

TEST(ModelTypes, EncodersAreRefusedAndOutputLayersAreNoHeads) {
    EXPECT_EQ(refusal(sizes("gpt2", {{"architectures", {"GPT2LMHeadModel"}}})), "accepted");
    EXPECT_FALSE(read(sizes("gpt2", {{"architectures", {"GPT2LMHeadModel"}}})).model.labels);
    const Json nested = {{"model_type", "seeing"}, {"text_config", sizes("llama", {{"architectures", {"LlamaModel"}}})}};
    EXPECT_FALSE(read(nested).model.labels) << "the larger model has the output layer";
    EXPECT_THAT(refusal(sizes("llama", {{"is_encoder_decoder", true}})), HasSubstr("no decoder-only transformer"));
}

TEST(ModelTypes, HeadsOfTokensSpansAndRewardsAreWhatTheirClassesAre) {
    const auto of = [](const std::string& type, const std::string& class_name, const Json& more = Json::object()) {
        Json json = sizes(type, {{"architectures", {class_name}}, {"tie_word_embeddings", true}});
        json.update(more);
        return read(json);
    };
    const auto behind_the_norm = [&](const Job& job, const std::string& type) {
        return total_parameters(job.model) - total_parameters(of(type, "", Json::object()).model);
    };
    const Job tokens = of("llama", "LlamaForTokenClassification", {{"num_labels", 3}});
    EXPECT_EQ(tokens.model.labels, 3);
    EXPECT_EQ(behind_the_norm(tokens, "llama"), 3 * 64 + 3) << "a bias as well (modeling_layers.py, GenericForTokenClassification)";
    EXPECT_EQ(behind_the_norm(of("llama", "LlamaForTokenClassification", {{"token_classification_bias", false}}), "llama"), 2 * 64);
    EXPECT_EQ(behind_the_norm(of("qwen2", "Qwen2ForQuestionAnswering"), "qwen2"), 2 * 64 + 2);
    const Job reward = of("llama", "LlamaForRewardModel");
    EXPECT_EQ(behind_the_norm(reward, "llama"), 64);
    EXPECT_THAT(reward.assumptions, Contains("a head of 1 value without a bias, for transformers has no class LlamaForRewardModel"));
    EXPECT_FALSE(is_counted_only(reward.model));
    // Qwen2.5-Math-RM, modeling_qwen2_rm.py: two linear layers.
    EXPECT_EQ(behind_the_norm(of("qwen2", "Qwen2ForRewardModel"), "qwen2"), 64 * 64 + 64 + 64 + 1);
    EXPECT_EQ(behind_the_norm(of("qwen2", "Qwen2ForProcessRewardModel"), "qwen2"), 64 * 64 + 64 + 2 * 64 + 2);
    EXPECT_EQ(model_from_json(model_to_json(tokens.model), "model"), tokens.model);
}

TEST(ModelTypes, ModelsWithoutAnOutputLayerAreCountedAlone) {
    const ModelSpec bare = read(sizes("llama", {{"architectures", {"LlamaModel"}}})).model;
    EXPECT_EQ(bare.labels, 0);
    EXPECT_EQ(total_parameters(bare), total_parameters(read(sizes("llama", {{"tie_word_embeddings", true}})).model));
    EXPECT_TRUE(is_counted_only(bare));
    EXPECT_THROW(refuse_counted_only(bare, "here"), ConfigError);
    EXPECT_EQ(model_from_json(model_to_json(bare), "model"), bare);
}

TEST(ModelTypes, HeadsThatScoreTextsStandInPlaceOfTheOutputLayer) {
    const auto scoring = [](const std::string& type, const Json& more) {
        Json json = sizes(type, {{"architectures", {"SomeForSequenceClassification"}}, {"tie_word_embeddings", true}});
        json.update(more);
        return read(json);
    };
    const Job job = scoring("llama", {{"num_labels", 3}});
    EXPECT_EQ(job.model.labels, 3);
    EXPECT_FALSE(job.model.tied_embeddings);
    EXPECT_EQ(total_parameters(job.model), total_parameters(read(sizes("llama", {{"tie_word_embeddings", true}})).model) + 3 * 64);
    EXPECT_EQ(scoring("llama", {{"id2label", {{"0", "GOOD"}}}, {"num_labels", 4}}).model.labels, 1) << "names count";
    EXPECT_EQ(scoring("llama", Json::object()).model.labels, 2);
    EXPECT_THAT(scoring("llama", Json::object()).assumptions, Contains("labels not given, 2 of the class's defaults taken"));
    EXPECT_THAT(refusal(sizes("llama", {{"architectures", {"LlamaForSequenceClassification"}}, {"num_labels", 0}})),
                HasSubstr("num_labels = 0 is out of range"));
    // The bias and the caps of the output layer go with it: phi's class has such a bias, Gemma 2's such a cap.
    EXPECT_FALSE(scoring("phi", Json::object()).model.output_bias);
    EXPECT_EQ(scoring("gemma2", {{"final_logit_softcapping", 30.0}}).model.logit_softcap, 0);
    // By transformers 5.23.0 of these configs, with AutoModelForSequenceClassification and three labels.
    EXPECT_EQ(total_parameters(scoring("gpt_neox", {{"num_labels", 3}}).model), 140'608);
}

TEST(ModelTypes, IndexersThatLayersShareAreCountedAlone) {
    const Json latent = {{"kv_lora_rank", 16},        {"q_lora_rank", 24},  {"qk_nope_head_dim", 8},    {"qk_rope_head_dim", 4},
                         {"v_head_dim", 8},           {"index_n_heads", 2}, {"index_head_dim", 6},      {"index_topk", 16},
                         {"n_routed_experts", 8},     {"n_group", 1},       {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12},
                         {"first_k_dense_replace", 1}};
    Json config = sizes("glm_moe_dsa", latent);
    const ModelSpec own = read(config).model;
    EXPECT_TRUE(own.kinds.empty());
    EXPECT_EQ(own.mla->index_heads, 2);
    EXPECT_EQ(own.moe->expert_bias, true);
    config["indexer_types"] = {"full", "shared", "shared", "full"};
    const ModelSpec shared = read(config).model;
    EXPECT_FALSE(shared.kinds.empty());
    // Both by transformers 5.23.0.
    EXPECT_EQ(total_parameters(own), 133'264);
    EXPECT_EQ(total_parameters(shared), 131'640);
    config.erase("indexer_types");
    config["index_topk_freq"] = 2;  // the third layer alone takes over a choice
    EXPECT_EQ(total_parameters(read(config).model), total_parameters(own) - (2 * 6 * 24 + 6 * 64 + 2 * 6 + 2 * 64));
    config["index_topk_pattern"] = "FSSF";
    EXPECT_EQ(total_parameters(read(config).model), total_parameters(shared));
    config["index_topk_pattern"] = "FS";
    EXPECT_THAT(refusal(config), HasSubstr("indexer_types has 2 entries for 4 layers"));
    config["index_topk_pattern"] = "FSXF";
    EXPECT_THAT(refusal(config), HasSubstr("entry 2 is 'X'"));
    config["index_topk_pattern"] = "SSFF";
    EXPECT_THAT(refusal(config), HasSubstr("entry 0 is 'shared'; write full, or shared after a layer that is full"));
}

TEST(ModelTypes, ExpertsWidthsAreTheirClasssWhereFilesGiveTheDenseOneAlone) {
    EXPECT_EQ(
        read(sizes("deepseek_v3", {{"kv_lora_rank", 16}, {"n_routed_experts", 16}, {"first_k_dense_replace", 1}})).model.moe->expert_ffn,
        2048);
    EXPECT_EQ(read(sizes("mixtral")).model.moe->expert_ffn, 128) << "its class has one width";
}

TEST(ModelTypes, BloomHasANormOfItsEmbeddings) {
    // bigscience/bloom, config.json; 176,247,271,424 parameters by its model card.
    const ModelSpec model = read({{"model_type", "bloom"},
                                  {"n_embed", 14336},
                                  {"n_layer", 70},
                                  {"num_attention_heads", 112},
                                  {"vocab_size", 250880},
                                  {"seq_length", 2048}})
                                .model;
    EXPECT_EQ(total_parameters(model), 176'247'271'424);
    EXPECT_TRUE(model.embedding_norm);
    EXPECT_THAT(model.left_out, testing::ElementsAre("attention scores lowered by distance (ALiBi)"));
    EXPECT_THAT(refusal(sizes("bloom", {{"apply_residual_connection_post_layernorm", true}})),
                HasSubstr("apply_residual_connection_post_layernorm = true changes the network"));
}

TEST(ModelTypes, AMultimodalClassDecidesWhetherEmbeddingsAreTied) {
    const auto tied = [](const std::string& outer, const Json& own, const Json& inner) {
        Json file = {{"model_type", outer}, {"text_config", sizes("qwen2")}};
        if (!own.is_null()) file["tie_word_embeddings"] = own;
        if (!inner.is_null()) file["text_config"]["tie_word_embeddings"] = inner;
        return read(file).model.tied_embeddings;
    };
    EXPECT_TRUE(tied("internvl", true, false));
    EXPECT_FALSE(tied("qwen3_vl_moe", false, true));
    EXPECT_TRUE(tied("llava", false, true)) << "configuration_llava.py takes the text part's over";
    EXPECT_TRUE(tied("internvl", nullptr, nullptr)) << "of its class";
    EXPECT_FALSE(tied("kimi_k25", nullptr, false)) << "its checkpoint has a head of its own";
    EXPECT_FALSE(tied("seeing", nullptr, nullptr));
}

TEST(ModelTypes, ReadTypesWhoseCodeIsOnTheHubAlone) {
    // inclusionAI/Ling-lite's total as its weights' index states it; a bias of q, k and v is a value for each of their 24 · 128 rows.
    Json ling = {{"model_type", "bailing_moe"}, {"hidden_size", 2048},       {"intermediate_size", 5632}, {"moe_intermediate_size", 1408},
                 {"num_hidden_layers", 28},     {"num_attention_heads", 16}, {"num_key_value_heads", 4},  {"head_dim", 128},
                 {"num_experts", 64},           {"num_experts_per_tok", 6},  {"num_shared_experts", 2},   {"first_k_dense_replace", 0},
                 {"norm_topk_prob", true},      {"use_bias", false},         {"use_qkv_bias", false},     {"vocab_size", 126464}};
    EXPECT_EQ(total_parameters(read(ling).model), 16'801'974'272);
    EXPECT_EQ(read(ling).model.moe->score, RouterScore::softmax);
    ling["use_qkv_bias"] = true;
    EXPECT_EQ(total_parameters(read(ling).model), 16'801'974'272 + 28 * 24 * 128);
    ling["use_bias"] = true;
    EXPECT_THAT(refusal(ling), HasSubstr("use_bias = true is not described by any layer of model_type 'bailing_moe'"));
    ling.erase("use_bias");
    EXPECT_THAT(refusal(ling), HasSubstr("use_bias = true")) << "of its class";
    const Json second = sizes("bailing_moe_v2", {{"num_experts", 8},
                                                 {"num_experts_per_tok", 2},
                                                 {"moe_intermediate_size", 32},
                                                 {"num_shared_experts", 2},
                                                 {"moe_shared_expert_intermediate_size", 48},
                                                 {"use_qk_norm", true},
                                                 {"moe_router_enable_expert_bias", false}});
    const ModelSpec ring = read(second).model;
    EXPECT_EQ(ring.moe->shared_ffn, 96);
    EXPECT_EQ(ring.moe->score, RouterScore::sigmoid);
    EXPECT_FALSE(ring.moe->expert_bias);
    EXPECT_TRUE(ring.qk_norm);
    EXPECT_THAT(refusal(sizes("bailing_moe_v2", {{"multi_gate", true}})), HasSubstr("multi_gate = true"));

    // baichuan-inc/Baichuan2-7B-Base's total; its 13B models, which are wider, have slopes.
    Json baichuan = {{"model_type", "baichuan"},  {"hidden_size", 4096},  {"intermediate_size", 11008},  {"num_hidden_layers", 32},
                     {"num_attention_heads", 32}, {"vocab_size", 125696}, {"tie_word_embeddings", false}};
    EXPECT_EQ(total_parameters(read(baichuan).model), 7'505'973'248);
    EXPECT_THAT(read(baichuan).model.left_out, testing::ElementsAre(HasSubstr("NormHead")));
    baichuan["vocab_size"] = 64000;
    EXPECT_TRUE(read(baichuan).model.left_out.empty());
    baichuan["hidden_size"] = 5120;
    EXPECT_THAT(read(baichuan).model.left_out, testing::ElementsAre(HasSubstr("ALiBi")));

    // XiaomiMiMo/MiMo-7B-Base: layers as Qwen2's, a layer of multi-token prediction with five norms and a map from two hidden states.
    const Json mimo = {{"model_type", "mimo"},        {"hidden_size", 4096},       {"intermediate_size", 11008},
                       {"num_hidden_layers", 36},     {"num_attention_heads", 32}, {"num_key_value_heads", 8},
                       {"vocab_size", 151680},        {"head_dim", 128},           {"num_nextn_predict_layers", 1},
                       {"tie_word_embeddings", false}};
    const std::int64_t attention = 2LL * 4096 * 4096 + 2 * 1024 * 4096 + 4096 + 2 * 1024, mlp = 3LL * 4096 * 11008;
    const std::int64_t layers = 2LL * 151680 * 4096 + 4096 + 36 * (attention + mlp + 2 * 4096);
    EXPECT_EQ(total_parameters(read(mimo).model), layers);
    EXPECT_EQ(read(mimo).model.mtp_layers, 1);
}

TEST(ModelTypes, NameWhatTheirClassesDoWithoutAField) {
    const Json latent = {{"kv_lora_rank", 16}, {"q_lora_rank", 16}, {"num_local_experts", 4}, {"n_routed_experts", 4}};
    const Json scaled = {{"rope_type", "yarn"}, {"factor", 2.0}, {"llama_4_scaling_beta", 0.1}};
    Json mistral = sizes("mistral4", latent);
    EXPECT_THAT(read(mistral).model.left_out, testing::ElementsAre("attention scores scaled by position"));
    mistral["rope_parameters"] = scaled;
    EXPECT_THAT(read(mistral).model.left_out, testing::ElementsAre("attention scores scaled by position"));
    EXPECT_THAT(read(sizes("biogpt")).model.left_out, testing::ElementsAre("words multiplied in front of the positions"));
    EXPECT_TRUE(read(sizes("biogpt", {{"scale_embedding", false}})).model.left_out.empty());
    EXPECT_EQ(read(sizes("biogpt")).model.max_positions, 1026) << "two rows that no token uses";
    EXPECT_EQ(read({{"model_type", "mllama"}, {"text_config", {{"vocab_size", 128256}}}}).model.type, "mllama_text_model");
}

TEST(ModelTypes, HeadsAreRoundedDownWhereTheirClassRounds) {
    const Json heads = {{"num_attention_heads", 6}, {"head_dim", nullptr}};
    EXPECT_EQ(read(sizes("glm4v_moe_text", heads)).model.head_dim, 10);
    EXPECT_THAT(refusal(sizes("llama", heads)), HasSubstr("attention heads = 6 do not divide hidden size = 64"));
}

TEST(ModelTypes, RotaryBasesMayStandLayerByLayer) {
    const auto granite = [](const Json& bases) { return sizes("granite_swa", {{"sliding_window", 8}, {"layer_rope_theta", bases}}); };
    const ModelSpec mixed = read(granite({0, 500.0, 500.0, 500.0})).model;  // the first of four layers sees all
    EXPECT_EQ(mixed.rotary_layers, (std::vector<bool>{false, true, true, true}));
    EXPECT_EQ(mixed.rotary_base, 500);
    EXPECT_EQ(mixed.window_rotary_base, 0) << "one base for all that turn";
    const ModelSpec two = read(granite({1000.0, 500.0, 500.0, 500.0})).model;
    EXPECT_TRUE(two.rotary_layers.empty());
    EXPECT_EQ(two.rotary_base, 1000);
    EXPECT_EQ(two.window_rotary_base, 500);
    const ModelSpec nowhere = read(granite({0, 0, 0, 0})).model;
    EXPECT_EQ(nowhere.position, PositionEmbedding::none);
    EXPECT_TRUE(nowhere.rotary_layers.empty());
    EXPECT_THAT(refusal(granite("x")), HasSubstr("layer_rope_theta = \"x\" is not a list"));
    EXPECT_THAT(refusal(granite({1000.0, 500.0, 400.0, 500.0})), HasSubstr("layer_rope_theta has 500 and 400 in layers that are alike"));
    EXPECT_THAT(refusal(granite({500.0})), HasSubstr("layer_rope_theta is no list of a number for each of 4 layers"));
}

TEST(ModelTypes, HunyuansExpertsMayStandInLists) {
    Json config = sizes("hunyuan_v1_moe", {{"num_experts", 8}, {"moe_topk", {2, 2, 2, 2}}, {"num_shared_expert", {1, 1, 1, 1}}});
    config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 1.0}, {"alpha", 1000.0}};
    const ModelSpec model = read(config).model;
    EXPECT_EQ(model.moe->top_k, 2);
    EXPECT_EQ(model.moe->shared_ffn, 128);
    EXPECT_NEAR(model.rotary_base, 1e4 * std::pow(1000.0, 16.0 / 14), 1) << "heads of 16";
    EXPECT_EQ(model.rotary_scaling, "");
    config["moe_topk"] = {2, 2, 1, 2};
    EXPECT_THAT(refusal(config), HasSubstr("moe_topk is 2 in one layer and 1 in another"));
    config["moe_topk"] = {2, 2};
    EXPECT_THAT(refusal(config), HasSubstr("moe_topk has 2 entries for 4 layers"));
    config["moe_topk"] = 2;
    config["moe_intermediate_size"] = 96;
    EXPECT_THAT(refusal(config), HasSubstr("moe_intermediate_size = 96 is passed over by the class of model_type 'hunyuan_v1_moe'"));
}

TEST(ModelTypes, AFileOfTwoLanguageModelsIsNeither) {
    const Json thinker = {{"model_type", "qwen2_5_omni_thinker"},
                          {"text_config", sizes("qwen2_5_omni_text", {{"tie_word_embeddings", true}})}};
    EXPECT_THAT(refusal({{"model_type", "qwen2_5_omni"}, {"thinker_config", thinker}}),
                HasSubstr("model_type 'qwen2_5_omni' holds two language models, a thinker and a talker"));
    EXPECT_TRUE(read(thinker).model.qkv_bias);
    EXPECT_FALSE(read(thinker).model.tied_embeddings) << "as the class of the thinker has it, whatever that of its text part says";
}

}  // namespace
}  // namespace mgplan::formats::model_types_test
