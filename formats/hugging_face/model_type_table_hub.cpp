#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types whose code is published with their weights (configuration_*.py and modeling_*.py of XiaomiMiMo/MiMo-7B-Base,
// baichuan-inc/Baichuan2-7B-Base, inclusionAI/Ling-lite and Ling-mini-2.0), read as vLLM and SGLang build them; sizes have no defaults
// here.
constexpr std::array kHub{
    ModelType{.name = "mimo",
              .class_name = "MiMoForCausalLM",
              .biases = BiasRule::qkv_always,
              .windows = WindowRule::switched_from_max,
              .defaults = R"({"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,"sliding_window":4096,
"max_window_layers":28})"},
    ModelType{.name = "baichuan",
              .class_name = "BaichuanForCausalLM",
              .biases = BiasRule::none,
              .defaults = R"({"hidden_act":"silu","rms_norm_eps":1e-06})",
              .arrange = arrange_baichuan},
    ModelType{.name = "bailing_moe",
              .class_name = "BailingMoeForCausalLM",
              .biases = BiasRule::qkv,
              .attention_bias_field = "use_qkv_bias",
              .moe = true,
              .defaults = R"({"hidden_act":"silu","max_position_embeddings":16384,"use_bias":true,"norm_topk_prob":true})",
              .arrange = arrange_bailing},
    ModelType{.name = "bailing_moe_v2",
              .class_name = "BailingMoeV2ForCausalLM",
              .biases = BiasRule::qkv,
              .attention_bias_field = "use_qkv_bias",
              .moe = true,
              .sigmoid_router = true,
              .expert_bias = true,
              .defaults = R"({"hidden_act":"silu","max_position_embeddings":32768,"norm_topk_prob":true})",
              .arrange = arrange_bailing},
};

}  // namespace

std::span<const ModelType> hub_model_types() {
    return kHub;
}

}  // namespace mgplan::formats
