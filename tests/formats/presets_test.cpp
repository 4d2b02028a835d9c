// Parameter counts of the presets against totals counted apart from mgplan, and against published ones.

#include <cmath>
#include <map>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "formats/model_source.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::formats::presets_test {
namespace {

struct Expected {
    const char* name;
    std::int64_t total;
    std::int64_t active;
};

// Counted from the fields of each config by the collectors of the published measurements (totals checked there against
// the published ones), those of types that no collector knew from the tensors that transformers 5.23.0 builds of the config; embedding
// included in the active count, the MTP layer in neither.
constexpr Expected kCounts[] = {
    {"command-r-35b", 34'980'831'232, 34'980'831'232},
    {"deepseek-llm-7b", 6'910'365'696, 6'910'365'696},
    {"deepseek-v2", 235'741'434'880, 21'375'800'320},
    {"deepseek-v2-lite", 15'706'484'224, 2'661'150'208},
    {"deepseek-v3", 671'026'404'352, 37'552'282'624},
    {"deepseek-v3.2", 671'877'929'216, 38'403'807'488},
    {"deepseek-v4-flash", 284'332'230'231, 13'799'622'231},
    {"deepseek-v4-pro", 1'572'997'179'491, 49'779'058'787},
    {"ernie-4.5-21b-a3b", 21'825'437'888, 3'352'150'208},
    {"falcon-40b", 41'303'293'952, 41'303'293'952},
    {"gemma-7b", 8'537'680'896, 8'537'680'896},
    {"gemma2-27b", 27'227'128'320, 27'227'128'320},
    {"gemma2-9b", 9'241'705'984, 9'241'705'984},
    {"gemma3-27b", 27'009'346'304, 27'009'346'304},
    {"glm-4-9b", 9'400'279'040, 9'400'279'040},
    {"glm-4.5", 352'797'814'784, 33'632'251'904},
    {"glm-4.5-air", 106'852'245'504, 13'424'123'904},
    {"glm-4.7-flash", 29'943'390'976, 3'896'763'136},
    {"glm-5", 743'911'199'232, 41'784'709'632},
    {"gpt-oss-120b", 116'829'149'760, 5'711'976'000},
    {"gpt-oss-20b", 20'914'754'880, 4'187'438'400},
    {"gpt3-175b", 174'615'846'912, 174'615'846'912},
    {"grok-1", 315'684'034'560, 83'755'800'576},
    {"jamba-v0.1", 51'570'323'328, 12'110'311'296},
    {"kimi-k2", 1'026'408'209'408, 32'861'477'888},
    {"kimi-k2-thinking", 1'026'408'209'408, 32'861'477'888},
    {"kimi-linear-48b-a3b", 49'133'074'464, 3'494'852'640},
    {"llama2-13b", 13'015'864'320, 13'015'864'320},
    {"llama2-70b", 68'976'648'192, 68'976'648'192},
    {"llama2-7b", 6'738'415'616, 6'738'415'616},
    {"llama3-70b", 70'553'706'496, 70'553'706'496},
    {"llama3-8b", 8'030'261'248, 8'030'261'248},
    {"llama3.1-405b", 405'853'388'800, 405'853'388'800},
    {"llama3.1-70b", 70'553'706'496, 70'553'706'496},
    {"llama3.1-8b", 8'030'261'248, 8'030'261'248},
    {"llama3.2-1b", 1'235'814'400, 1'235'814'400},
    {"llama3.2-3b", 3'212'749'824, 3'212'749'824},
    {"llama4-maverick", 400'711'848'960, 17'184'691'200},
    {"llama4-scout", 107'769'861'120, 17'172'894'720},
    {"megatron-gpt-1t", 1'008'038'758'400, 1'008'038'758'400},
    {"megatron-gpt-22b", 22'074'273'792, 22'074'273'792},
    {"mimo-7b", 7'622'619'136, 7'622'619'136},
    {"minimax-m2", 228'689'748'992, 11'030'537'216},
    {"minimax-text-01", 456'089'655'296, 48'403'306'496},
    {"mistral-7b-v0.1", 7'241'732'096, 7'241'732'096},
    {"mistral-large-123b", 122'610'069'504, 122'610'069'504},
    {"mistral-nemo-12b", 12'247'782'400, 12'247'782'400},
    {"mistral-small-4", 118'972'826'624, 6'632'588'288},
    {"mixtral-8x22b", 140'620'634'112, 39'152'031'744},
    {"mixtral-8x7b", 46'702'792'704, 12'879'925'248},
    {"moonlight-16b-a3b", 15'960'108'544, 2'914'774'528},
    {"mt-nlg-530b", 529'600'819'200, 529'600'819'200},
    {"nemo-gpt3-20b", 20'262'014'976, 20'262'014'976},
    {"nemo-gpt3-40b", 39'096'041'472, 39'096'041'472},
    {"nemo-gpt3-5b", 5'051'228'160, 5'051'228'160},
    {"nemotron-3-nano-30b-a3b", 31'577'937'344, 3'580'073'408},
    {"nemotron-3-super-120b-a12b", 120'668'687'360, 12'770'216'960},
    {"nemotron-h-8b", 8'100'852'736, 8'100'852'736},
    {"nemotron-nano-12b-v2", 12'310'001'152, 12'310'001'152},
    {"nemotron-nano-9b-v2", 8'888'227'328, 8'888'227'328},
    {"nemotron3-22b", 21'266'116'608, 21'266'116'608},
    {"nemotron3-8b", 8'540'135'424, 8'540'135'424},
    {"nemotron4-15b", 15'628'775'424, 15'628'775'424},
    {"nemotron4-340b", 341'029'195'776, 341'029'195'776},
    {"olmo2-7b", 7'298'617'344, 7'298'617'344},
    {"olmoe-1b-7b", 6'919'161'856, 1'282'017'280},
    {"phi-2", 2'779'683'840, 2'779'683'840},
    {"phi-3-mini", 3'821'079'552, 3'821'079'552},
    {"phi-4", 14'659'507'200, 14'659'507'200},
    {"pythia-6.9b", 6'857'302'016, 6'857'302'016},
    {"qwen1.5-moe-a2.7b", 14'315'784'192, 2'689'173'504},
    {"qwen2-57b-a14b", 57'408'558'592, 14'249'170'432},
    {"qwen2.5-0.5b", 494'032'768, 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304, 1'543'714'304},
    {"qwen2.5-14b", 14'770'033'664, 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352, 32'763'876'352},
    {"qwen2.5-3b", 3'085'938'688, 3'085'938'688},
    {"qwen2.5-72b", 72'706'203'648, 72'706'203'648},
    {"qwen2.5-7b", 7'615'616'512, 7'615'616'512},
    {"qwen3-0.6b", 596'049'920, 596'049'920},
    {"qwen3-1.7b", 1'720'574'976, 1'720'574'976},
    {"qwen3-14b", 14'768'307'200, 14'768'307'200},
    {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520},
    {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704},
    {"qwen3-32b", 32'762'123'264, 32'762'123'264},
    {"qwen3-4b", 4'022'468'096, 4'022'468'096},
    {"qwen3-8b", 8'190'735'360, 8'190'735'360},
    {"qwen3-coder-480b-a35b", 480'154'875'392, 35'474'765'312},
    {"qwen3-next-80b-a3b", 79'674'391'296, 3'874'929'408},
    {"qwen3.5-0.8b", 752'393'024, 752'393'024},
    {"qwen3.5-122b-a10b", 122'111'526'912, 9'771'288'576},
    {"qwen3.5-27b", 26'895'998'464, 26'895'998'464},
    {"qwen3.5-2b", 1'881'825'088, 1'881'825'088},
    {"qwen3.5-35b-a3b", 34'660'610'688, 3'454'988'928},
    {"qwen3.5-397b-a17b", 396'346'350'336, 17'349'040'896},
    {"qwen3.5-4b", 4'205'751'296, 4'205'751'296},
    {"qwen3.5-9b", 8'953'803'264, 8'953'803'264},
    {"sc21-gpt-1.7b", 1'652'230'656, 1'652'230'656},
    {"sc21-gpt-145b", 145'622'261'760, 145'622'261'760},
    {"sc21-gpt-18b", 18'449'756'160, 18'449'756'160},
    {"sc21-gpt-3.6b", 3'562'168'320, 3'562'168'320},
    {"sc21-gpt-310b", 310'130'540'544, 310'130'540'544},
    {"sc21-gpt-39b", 39'096'041'472, 39'096'041'472},
    {"sc21-gpt-7.5b", 7'467'786'240, 7'467'786'240},
    {"sc21-gpt-76b", 76'050'739'200, 76'050'739'200},
    {"seed-oss-36b", 36'151'104'512, 36'151'104'512},
    {"smollm3-3b", 3'075'098'624, 3'075'098'624},
    {"solar-open-100b", 102'651'793'408, 12'054'827'008},
    {"stablelm-3b", 2'795'443'200, 2'795'443'200},
    {"starcoder2-3b", 3'030'371'328, 3'030'371'328},
};

/// Weights that those counts leave out and the architectures have: attention sinks and router biases of gpt-oss, the
/// gate on the shared expert of Qwen2-MoE (transformers modeling_gpt_oss.py, modeling_qwen2_moe.py).
const std::map<std::string, std::int64_t> kLeftOut{
    {"gpt-oss-120b", 36 * (64 + 128)}, {"gpt-oss-20b", 24 * (64 + 32)}, {"qwen2-57b-a14b", 28 * 3584}};

TEST(Presets, HoldTheParametersOfTheirModels) {
    for (const auto& expected : kCounts) {
        const ModelSpec model = load_model(expected.name).model;
        const auto more = kLeftOut.find(expected.name);
        const std::int64_t left_out = more == kLeftOut.end() ? 0 : more->second;
        EXPECT_EQ(total_parameters(model), expected.total + left_out) << expected.name;
        EXPECT_EQ(active_parameters(model), expected.active + left_out) << expected.name;
    }
}

TEST(Presets, AgreeWithPublishedTotals) {
    const std::map<std::string, double> published{{"llama3-8b", 8.030e9},     {"llama3-70b", 70.554e9},   {"llama3.1-405b", 405.853e9},
                                                  {"deepseek-v3", 671.026e9}, {"gpt-oss-120b", 116.83e9}, {"gpt-oss-20b", 20.91e9},
                                                  {"llama3.2-1b", 1.2358e9},  {"mixtral-8x7b", 46.703e9}, {"qwen2.5-0.5b", 0.494e9}};
    for (const auto& [name, billions] : published) {
        const auto total = static_cast<double>(total_parameters(load_model(name).model));
        EXPECT_LT(std::abs(total / billions - 1), 1e-3) << name << " " << total;
    }
}

/// Parameters that a token uses, as published: billions as printed, and how many of the tables of words (embedding, output layer) the
/// publisher leaves out of them.
struct PublishedActive {
    const char* name;
    double total, active, unit;  ///< unit of the last digit of `active`
    int tables_left_out;
    const char* source;
};

constexpr PublishedActive kPublishedActive[] = {
    {"deepseek-v2", 236, 21, 1, 1, "arXiv 2405.04434, abstract"},
    {"deepseek-v2-lite", 15.7, 2.4, 0.1, 1, "arXiv 2405.04434, appendix B"},
    {"deepseek-v3", 671, 37, 1, 1, "arXiv 2412.19437, abstract"},
    {"deepseek-v3.2", 671, 37, 1, 1, "model card of deepseek-ai/DeepSeek-V3.2-Exp: as DeepSeek-V3"},
    {"deepseek-v4-flash", 284, 13, 1, 1, "model card of deepseek-ai/DeepSeek-V4-Flash"},
    {"deepseek-v4-pro", 1600, 49, 1, 1, "model card of deepseek-ai/DeepSeek-V4-Pro (1.6 T)"},
    {"glm-4.5", 355, 32, 1, 2, "arXiv 2508.06471, abstract"},
    {"glm-4.5-air", 106, 12, 1, 2, "arXiv 2508.06471, abstract"},
    {"glm-5", 744, 40, 1, 1, "model card of zai-org/GLM-5"},
    {"gpt-oss-20b", 20.91, 3.61, 0.01, 1, "arXiv 2508.10925, table 1"},
    {"gpt-oss-120b", 116.83, 5.13, 0.01, 1, "arXiv 2508.10925, table 1"},
    {"kimi-k2", 1040, 32, 1, 1, "arXiv 2507.20534, table 2 (1.04 T)"},
    {"llama4-scout", 109, 17, 1, 0, "model card of meta-llama/Llama-4-Scout-17B-16E (its vision encoder included)"},
    {"minimax-m2", 230, 10, 1, 2, "model card of MiniMaxAI/MiniMax-M2"},
    {"mistral-small-4", 119, 6, 1, 0, "model card of mistralai/Mistral-Small-4-119B-2603"},
    {"mixtral-8x7b", 46.7, 12.9, 0.1, 0, "mistral.ai/news/mixtral-of-experts"},
    {"mixtral-8x22b", 141, 39, 1, 0, "mistral.ai/news/mixtral-8x22b"},
    {"olmoe-1b-7b", 6.9, 1.3, 0.1, 0, "arXiv 2409.02060, section 2"},
    {"qwen2-57b-a14b", 57, 14, 1, 0, "arXiv 2407.10671, table 1"},
    {"qwen3-30b-a3b", 30.5, 3.3, 0.1, 0, "model card of Qwen/Qwen3-30B-A3B"},
    {"qwen3-235b-a22b", 235, 22, 1, 0, "model card of Qwen/Qwen3-235B-A22B"},
    {"solar-open-100b", 102.6, 12, 1, 0, "model card of upstage/Solar-Open-100B"},
    // Hybrids.
    {"jamba-v0.1", 52, 12, 1, 0, "arXiv 2403.19887, abstract"},
    {"kimi-linear-48b-a3b", 48, 3, 1, 1, "arXiv 2510.26692, abstract"},
    {"minimax-text-01", 456, 45.9, 0.1, 2, "arXiv 2501.08313, abstract"},
    {"nemotron-h-8b", 8.1, 8.1, 0.1, 0, "model card of nvidia/Nemotron-H-8B-Base-8K"},
    {"nemotron-3-nano-30b-a3b", 31.6, 3.6, 0.1, 0, "model card of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"},
    {"nemotron-3-super-120b-a12b", 120, 12, 1, 0, "model card of nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"},
    {"qwen3.5-35b-a3b", 35, 3, 1, 0, "model card of Qwen/Qwen3.5-35B-A3B"},
    {"qwen3-next-80b-a3b", 80, 3, 1, 2, "model card of Qwen/Qwen3-Next-80B-A3B-Instruct"},
};

TEST(Presets, UseAsManyParametersATokenAsPublished) {
    for (const auto& published : kPublishedActive) {
        const ModelSpec model = load_model(published.name).model;
        const double table = static_cast<double>(model.vocab * model.hidden) / 1e9;
        const double total = static_cast<double>(total_parameters(model)) / 1e9,
                     active = static_cast<double>(active_parameters(model)) / 1e9;
        EXPECT_NEAR(total / published.total, 1, 0.03) << published.name << ", " << published.source;
        EXPECT_NEAR(active - published.tables_left_out * table, published.active, published.unit)
            << published.name << ", " << published.source;
    }
}

TEST(PublishedConfigs, OfNemotron3NanoUseAsManyParametersATokenAsItsReportSays) {
    // nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16, config.json; its report (December 2025): 31.6 B, of which a token uses 3.2 B, and 3.6 B
    // with embeddings.
    const auto config = nlohmann::ordered_json::parse(R"({"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 2688,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856, "mamba_num_heads": 64, "mamba_head_dim": 64,
        "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 1,
        "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "mlp_hidden_act": "relu2",
        "max_position_embeddings": 262144})");
    const ModelSpec model = read_hugging_face(config, "nemotron-3-nano", "nemotron-3-nano").model;
    const double table = static_cast<double>(model.vocab * model.hidden) / 1e9;
    EXPECT_NEAR(static_cast<double>(total_parameters(model)) / 1e9, 31.6, 0.05);
    EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9, 3.6, 0.05);
    EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9 - table, 3.2, 0.05);
    EXPECT_FALSE(is_counted_only(model));
}

TEST(PublishedConfigs, OfDbrxUseAsManyParametersATokenAsItsCardSays) {
    // databricks/dbrx-base, config.json; its card: 132 B, of which 36 B are active on any input.
    const auto config = nlohmann::ordered_json::parse(R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}, "max_seq_len": 32768, "vocab_size": 100352,
        "ffn_config": {"ffn_hidden_size": 10752, "moe_jitter_eps": 0, "moe_loss_weight": 0.05, "moe_num_experts": 16, "moe_top_k": 4}})");
    const ModelSpec model = read_hugging_face(config, "dbrx", "dbrx").model;
    EXPECT_NEAR(static_cast<double>(total_parameters(model)) / 1e9, 132, 0.5);
    EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9, 36, 0.5);
    EXPECT_EQ(model.qkv_clip, 8);
    EXPECT_EQ(model.rotary_base, 500'000);
    EXPECT_EQ(model.moe->auxiliary_loss, 0.05);
    EXPECT_THAT(features_not_computed(model), testing::IsEmpty());
}

/// A published model whose sizes are those of its class, or that a file states.
ModelSpec published_config(const char* text) {
    return read_hugging_face(nlohmann::ordered_json::parse(text), "published", "published").model;
}

TEST(PublishedConfigs, OfMixturesAndHybridsUseAsManyParametersATokenAsPublished) {
    struct Published {
        const char* config;
        double total, active, total_unit, active_unit;
        const char* source;
    };
    const std::vector<Published> all = {
        {R"({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32, "head_dim": 128,
             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128167, "num_experts": 64, "moe_topk": 8,
             "max_position_embeddings": 32768, "tie_word_embeddings": true})",
         80, 13, 1, 1, "model card of tencent/Hunyuan-A13B-Instruct"},
        {R"({"model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
             "vocab_size": 129280})",
         671, 37, 2, 2, "model card of deepseek-ai/DeepSeek-V3.2-Exp: V3.1's, and an indexer of 0.85 B"},
        {R"({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
             "vocab_size": 65536})",
         52, 12, 1, 1, "arXiv 2403.19887, section 1"},
        {R"({"model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64, "state_size": 16,
             "time_step_rank": 256, "vocab_size": 65024, "tie_word_embeddings": false})",
         7.27, 7.27, 0.005, 0.005, "parameter count of tiiuae/falcon-mamba-7b on the hub"},
    };
    for (const Published& one : all) {
        const ModelSpec model = published_config(one.config);
        EXPECT_NEAR(static_cast<double>(total_parameters(model)) / 1e9, one.total, one.total_unit) << one.source;
        EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9, one.active, one.active_unit) << one.source;
    }
    // arXiv 2404.07839, abstract: 2 B without embeddings.
    const ModelSpec recurrent = published_config(
        R"({"model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15360, "num_hidden_layers": 26, "head_dim": 256,
             "num_attention_heads": 10, "num_key_value_heads": 1, "lru_width": 2560, "vocab_size": 256000})");
    EXPECT_NEAR(static_cast<double>(total_parameters(recurrent) - recurrent.vocab * recurrent.hidden) / 1e9, 2, 0.05);
}

ParameterCount sum(const std::vector<Parameter>& parameters) {
    ParameterCount count;
    for (const auto& parameter : parameters) (parameter.expert ? count.expert : count.dense) += parameter.count();
    return count;
}

TEST(Presets, CountEachLayerAsItsListOfParametersDoes) {
    for (const auto& name : preset_names()) {
        const ModelSpec model = load_model(name).model;
        for (const std::int64_t tp : {1, 2, 4, 8}) {
            if (model.heads % tp != 0 || model.ffn % tp != 0) continue;
            EXPECT_EQ(sum(layer_parameters(model, LayerKind::dense, tp, 1, 1, "")),
                      layer_parameter_count(model, LayerKind::dense, tp, 1, 1))
                << name << " tp " << tp;
            for (const std::int64_t ep : {1, 2, 8}) {
                for (const std::int64_t etp : {1, 2, 4}) {
                    if (!model.moe || model.moe->experts % ep != 0 || model.moe->expert_ffn % etp != 0) continue;
                    EXPECT_EQ(sum(layer_parameters(model, LayerKind::moe, tp, ep, etp, "")),
                              layer_parameter_count(model, LayerKind::moe, tp, ep, etp))
                        << name << " tp " << tp << " ep " << ep << " etp " << etp;
                }
            }
        }
    }
}

TEST(Presets, AHeadOfLabelsStandsOnTheLastStageInPlaceOfTheOutputLayer) {
    ModelSpec model = load_model("qwen3-0.6b").model;
    const std::int64_t table = model.vocab * model.hidden;
    ASSERT_TRUE(model.tied_embeddings);
    const std::int64_t without = total_parameters(model) - table;
    model.tied_embeddings = false;
    model.labels = 3;
    EXPECT_EQ(total_parameters(model), without + table + 3 * model.hidden);
    for (const std::int64_t tp : {1, 2}) {
        Layout layout;
        layout.sizes.pp = 2;
        layout.sizes.tp = tp;
        layout.sizes.world = 2 * tp;
        layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, 2, 1).value());
        const Parameter output = stage_parameters(model, layout, 1).front().back();
        EXPECT_EQ(output.name, "output_layer.weight");
        EXPECT_EQ(output.shape, (std::vector<std::int64_t>{tp == 1 ? 3 : 2, model.hidden})) << "rounded up to a multiple of tp";
        EXPECT_FALSE(output.shared_embedding);
        EXPECT_EQ(sum(stage_parameters(model, layout, 1).front()), stage_parameter_count(model, layout, 1));
    }
}

TEST(Presets, CountStagesAsTheirListsDoAndMissNothing) {
    for (const auto& name : preset_names()) {
        const ModelSpec model = load_model(name).model;
        for (const int pp : {1, 2, 4}) {
            const auto split = automatic_stage_split(model.layers, model.mtp_layers, pp, 1);
            if (!split) continue;
            Layout layout;
            layout.sizes.world = layout.sizes.pp = pp;
            layout.split = std::make_shared<const StageSplit>(*split);
            std::int64_t all = 0;
            for (int rank = 0; rank < pp; ++rank) {
                ParameterCount listed;
                for (const auto& chunk : stage_parameters(model, layout, rank)) listed += sum(chunk);
                EXPECT_EQ(listed, stage_parameter_count(model, layout, rank)) << name << " pp " << pp << " rank " << rank;
                all += listed.total();
            }
            // Beyond the published total: padding of the vocabulary, the copies that stages keep of the embedding, MTP.
            const std::int64_t embedding = embedding_parameter_count(model, 1).total(), word = model.padded_vocab(1) * model.hidden;
            std::int64_t expected = total_parameters(model) + (model.tied_embeddings ? 1 : 2) * (word - model.vocab * model.hidden);
            if (pp > 1 && model.tied_embeddings) expected += word;
            if (model.mtp_layers > 0)
                expected += model.mtp_layers * mtp_layer_parameter_count(model, 1, 1, 1).total() + (pp > 1 ? embedding : 0);
            // Biases that choose experts are counted and no parameters: training keeps them beside.
            for (const CountedTensor& tensor : model.counted) {
                if (tensor.name == kChoiceBias) expected -= tensor.shape.front() * tensor.copies;
            }
            EXPECT_EQ(all, expected) << name << " pp " << pp;
        }
    }
}

TEST(Presets, NameParametersAsMegatronDoes) {
    const auto names = [](const char* preset, LayerKind kind, std::int64_t ep) {
        std::vector<std::string> found;
        for (const auto& parameter : layer_parameters(load_model(preset).model, kind, 1, ep, 1, "decoder.layers.0."))
            found.push_back(parameter.name);
        return found;
    };
    EXPECT_EQ(names("tiny-llama", LayerKind::dense, 1),
              (std::vector<std::string>{
                  "decoder.layers.0.self_attention.linear_proj.weight", "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                  "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                  "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc2.weight"}));
    EXPECT_EQ(names("tiny-moe", LayerKind::moe, 8),
              (std::vector<std::string>{"decoder.layers.0.self_attention.linear_proj.weight",
                                        "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                                        "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.layers.0.pre_mlp_layernorm.weight",
                                        "decoder.layers.0.mlp.router.weight", "decoder.layers.0.mlp.experts.linear_fc1.weight0",
                                        "decoder.layers.0.mlp.experts.linear_fc2.weight0"}));
}

TEST(Presets, CarryTheirNameAndSource) {
    EXPECT_GE(preset_names().size(), 82U);
    for (const auto& name : preset_names()) {
        const Job job = load_model(name);
        EXPECT_EQ(job.model.name, name);
        EXPECT_FALSE(job.model.source.empty()) << name;
        EXPECT_TRUE(job.assumptions.empty()) << name << ": " << job.assumptions.front();
        EXPECT_GT(active_parameters(job.model), 0);
    }
    for (const auto* tiny : {"tiny-llama", "tiny-gpt", "tiny-moe"}) {
        const ModelSpec model = load_model(tiny).model;
        EXPECT_EQ(model.default_sequence, 64);
        EXPECT_EQ(model.default_global_batch, 32);
    }
}

}  // namespace
}  // namespace mgplan::formats::presets_test
