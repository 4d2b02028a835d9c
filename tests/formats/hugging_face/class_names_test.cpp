// The classes of "architectures" are held against the class of the model type.

#include "formats/hugging_face/class_names.hpp"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/config_text.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::class_names_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json config(const std::string& type, const std::string& class_name) {
    return {{"model_type", type},       {"architectures", {class_name}}, {"hidden_size", 64},        {"num_hidden_layers", 2},
            {"num_attention_heads", 4}, {"num_key_value_heads", 4},      {"intermediate_size", 128}, {"vocab_size", 100}};
}

std::string refusal(const Json& json) {
    try {
        (void)read_hugging_face(json, "model", "config.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "taken";
}

TEST(ClassNames, OfDraftModelsAreRefusedByName) {
    // SpecForge and DFlash: their files carry the sizes of a full model.
    for (const std::string name :
         {"LlamaForCausalLMEagle3", "DFlashDraftModel", "DSparkDraftModel", "Qwen3ForCausalLMEagle3", "MedusaModel"}) {
        EXPECT_THAT(refusal(config("llama", name)), AllOf(HasSubstr("architectures names " + name), HasSubstr("draft model"))) << name;
    }
}

TEST(ClassNames, OfOtherNetworksAreRefused) {
    for (const std::string name : {"LlamaMTPForCausalLM", "MyOwnForCausalLM", "OtherModel"})
        EXPECT_THAT(refusal(config("llama", name)),
                    AllOf(HasSubstr("architectures names " + name), HasSubstr("no class of model_type 'llama' (LlamaForCausalLM)")))
            << name;
}

TEST(ClassNames, OfTheTypeAndOfKnownHeadsAreTaken) {
    for (const auto& [type, name] : std::to_array<std::pair<std::string, std::string>>({{"llama", "LlamaForCausalLM"},
                                                                                        {"llama", "LLaMAForCausalLM"},
                                                                                        {"llama", "LlamaModel"},
                                                                                        {"llama", "LlamaForTokenClassification"},
                                                                                        {"qwen2", "Qwen2ForProcessRewardModel"},
                                                                                        {"llama", "SomeForSequenceClassification"},
                                                                                        {"internlm3", "LlamaForCausalLM"},
                                                                                        {"qwen2_vl", "Qwen2VLForConditionalGeneration"}}))
        EXPECT_EQ(refusal(config(type, name)), "taken") << type << " " << name;
}

TEST(ClassNames, TellAnUnknownType) {
    EXPECT_THAT(refusal(config("deepseek_ref", "DeepseekV4ForCausalLM")),
                AllOf(HasSubstr("DeepseekV4ForCausalLM, the class of model_type 'deepseek_v4'"), Not(HasSubstr("nearest"))));
}

TEST(Wrappers, OfUnknownTypesAreSaid) {
    Json wrapper{{"model_type", "kimi_k9"}, {"text_config", config("llama", "LlamaForCausalLM")}};
    EXPECT_THAT(read_hugging_face(wrapper, "model", "config.json").notes,
                ::testing::Contains(HasSubstr("the model around the text part is of type 'kimi_k9', which is not known")));
    wrapper["text_config"]["hidden_act"] = "situ";
    EXPECT_THAT(refusal(wrapper), AllOf(HasSubstr("kimi_k9"), HasSubstr("another network"), Not(HasSubstr("use silu"))));
    wrapper["model_type"] = "llava";
    EXPECT_THAT(refusal(wrapper), Not(HasSubstr("around the text part")));
}

TEST(LeftOut, FieldsOfKimiK3ChangeTheNetwork) {
    // Experts that work narrower than the model, gated attention outputs: 2.8 trillion weights where 5.5 would be counted without them.
    for (const char* field : {"routed_expert_hidden_size", "mla_use_output_gate", "attn_res_block_size", "latent_moe_use_norm"}) {
        Json json = config("llama", "LlamaForCausalLM");
        json[field] = std::string(field).find("use") == std::string::npos ? Json(16) : Json(true);
        EXPECT_THAT(refusal(json), HasSubstr(field));
    }
}

TEST(ConfigText, PassesOverListsOfQuantisedLayers) {
    std::string layers;
    for (int layer = 0; layer < 5000; ++layer) layers += (layer == 0 ? "\"l" : ",\"l") + std::to_string(layer) + "\": {\"a\": \"}\"}";
    std::string text = config("llama", "LlamaForCausalLM").dump();
    text.pop_back();
    const Json parsed = parse_config(text + ",\n\"quantization_config\": {\n\"layers\": {" + layers + "}}}", "config.json");
    EXPECT_TRUE(parsed.at("quantization_config").empty());
    EXPECT_EQ(refusal(parsed), "taken");
    EXPECT_THROW((void)parse_config(R"({"quantization_config": {"a": 1)", "config.json"), ConfigError);
    EXPECT_EQ(parse_config(R"({"note": "\"quantization_config\"", "a": 1})", "config.json").at("a"), 1);
}

}  // namespace
}  // namespace mgplan::formats::class_names_test
