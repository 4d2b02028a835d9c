#include "formats/hugging_face/model_types.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

/// Other names of rows: of language models inside multimodal ones, but for what they see, and of models whose code was published with their
/// weights before transformers had it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kSameModels{{{"llama4", "llama4_text"},
                                                                                    {"qwen2_vl", "qwen2_vl_text"},
                                                                                    {"qwen2_5_vl", "qwen2_5_vl_text"},
                                                                                    {"kimi_k25_text", "kimi_k2"},
                                                                                    {"phi4_multimodal", "phi3"},
                                                                                    {"MiniMaxText01", "minimax"},
                                                                                    {"minimax_text_01", "minimax"},
                                                                                    {"MiniMaxM1", "minimax"},
                                                                                    {"minimax_m1", "minimax"}}};

/// Text parts that transformers makes where a file names none: CONFIG_MAPPING[…] in the configuration of the larger model.
constexpr std::array<std::pair<std::string_view, std::string_view>, 35> kTextTypes{{{"llama4", "llama4_text"},
                                                                                    {"qwen2_vl", "qwen2_vl_text"},
                                                                                    {"qwen2_5_vl", "qwen2_5_vl_text"},
                                                                                    {"qwen3_vl", "qwen3_vl_text"},
                                                                                    {"qwen3_vl_moe", "qwen3_vl_moe_text"},
                                                                                    {"llava", "llama"},
                                                                                    {"llava_next", "llama"},
                                                                                    {"llava_next_video", "llama"},
                                                                                    {"llava_onevision", "qwen2"},
                                                                                    {"video_llava", "llama"},
                                                                                    {"vipllava", "llama"},
                                                                                    {"internvl", "qwen2"},
                                                                                    {"idefics2", "mistral"},
                                                                                    {"qwen2_audio", "qwen2"},
                                                                                    {"minimax_m3_vl", "minimax_m3_vl_text"},
                                                                                    {"cosmos3_edge", "cosmos3_edge_text"},
                                                                                    {"glm4v_moe", "glm4v_moe_text"},
                                                                                    {"glm_ocr", "glm_ocr_text"},
                                                                                    {"granite4_vision", "granite4_vision_text"},
                                                                                    {"hunyuan_vl", "hunyuan_vl_text"},
                                                                                    {"mllama", "mllama_text_model"},
                                                                                    {"molmo2", "molmo2_text"},
                                                                                    {"qwen3_omni_moe_thinker", "qwen3_omni_moe_text"},
                                                                                    {"qwen2_5_omni_thinker", "qwen2_5_omni_text"},
                                                                                    {"unlimited_ocr", "unlimited_ocr_text"},
                                                                                    {"voxtral_realtime", "voxtral_realtime_text"},
                                                                                    {"paligemma", "gemma"},
                                                                                    {"qwen4_exp", "qwen4_exp_text"},
                                                                                    {"muse_spark", "muse_spark_text"},
                                                                                    {"muse_glimmer", "muse_glimmer_text"},
                                                                                    {"cohere_compass", "cohere_compass_text"},
                                                                                    {"diffusion_gemma", "diffusion_gemma_text"},
                                                                                    {"deepseek_ocr2", "deepseek_ocr2_text"},
                                                                                    {"kosmos-2", "kosmos_2_text_model"},
                                                                                    {"kosmos-2.5", "kosmos_2_5_text_model"}}};

/// tie_word_embeddings of the multimodal class is true.
constexpr std::array<std::string_view, 18> kTied{
    "aya_vision", "cohere2_vision", "deepseek_vl",    "deepseek_vl_hybrid", "gemma3", "gemma3n",  "gemma4",
    "glmasr",     "got_ocr2",       "granite_speech", "internvl",           "janus",  "kimi_k25", "hyperclovax_vision_v2",
    "mistral3",   "ovis2",          "paligemma",      "voxtral_realtime"};

/// Its class takes the value of the text part over where its own is false.
constexpr std::array<std::string_view, 9> kTiedAsText{"fast_vlm",   "llava",    "llava_next_video", "llava_onevision", "minimax_m3_vl",
                                                      "qwen2_5_vl", "qwen2_vl", "shieldgemma2",     "video_llama_3"};

/// Its own field alone says so, and is false where the file does not state it (tested by building each combination).
constexpr std::array<std::string_view, 5> kTiedByItself{"cohere_compass", "muse_glimmer", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker",
                                                        "qwen4_exp"};

/// Others that transformers has around a text part that their files name by its own type.
constexpr std::array<std::string_view, 24> kOtherWrappers{
    "aria",          "blip-2",       "emu3",    "ernie4_5_vl_moe", "fuyu",           "gemma4_unified", "glm4v",    "glm46v",
    "idefics3",      "instructblip", "lfm2_vl", "lighton_ocr",     "llama4",         "mistral3",       "ovis2_5",  "paddleocr_vl",
    "perception_lm", "pixtral",      "qwen3_5", "qwen3_5_moe",     "qwen3_omni_moe", "smolvlm",        "step3_vl", "voxtral"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

template <class Pairs>
std::string_view second_of(const Pairs& pairs, std::string_view first) {
    for (const auto& [name, other] : pairs) {
        if (name == first) return other;
    }
    return {};
}

ModelType llama_with_all_fields() {
    ModelType type = model_types().front();
    type.moe = true;
    type.windows = WindowRule::every_layer;
    return type;
}

}  // namespace

std::span<const ModelType> model_types() {
    static const std::vector<ModelType> kAll = [] {
        std::vector<ModelType> all;
        for (const auto types :
             {plain_model_types(), mixture_model_types(), arranged_model_types(), hub_model_types(), attention_model_types(),
              sparse_model_types(), latent_model_types(), counted_model_types(), hybrid_model_types()})
            all.insert(all.end(), types.begin(), types.end());
        return all;
    }();
    return kAll;
}

const ModelType* find_model_type(std::string_view name) {
    if (const auto same = second_of(kSameModels, name); !same.empty()) name = same;
    for (const auto& type : model_types()) {
        if (type.name == name) return &type;
    }
    return nullptr;
}

const ModelType* find_model_class(std::string_view class_name) {
    for (const auto& type : model_types()) {
        if (!type.class_name.empty() && type.class_name == class_name) return &type;
    }
    return nullptr;
}

const ModelType& assumed_model_type() {
    static const ModelType kAssumed = llama_with_all_fields();
    return kAssumed;
}

std::vector<std::string> known_model_types() {
    std::vector<std::string> names;
    for (const auto& type : model_types()) names.emplace_back(type.name);
    return names;
}

std::string_view text_type_of(std::string_view multimodal) {
    return second_of(kTextTypes, multimodal);
}

bool is_known_around_text(std::string_view multimodal) {
    return !text_type_of(multimodal).empty() || holds(kTied, multimodal) || holds(kTiedAsText, multimodal) ||
           holds(kTiedByItself, multimodal) || holds(kOtherWrappers, multimodal);
}

bool ties_by_default(std::string_view multimodal) {
    return holds(kTied, multimodal);
}

bool ties_as_its_text_part(std::string_view multimodal) {
    return holds(kTiedAsText, multimodal);
}

bool ties_by_itself(std::string_view multimodal) {
    return holds(kTiedByItself, multimodal);
}

}  // namespace mgplan::formats
