#include <array>

#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types composed of latent or compressed attention and experts (compose_latent.cpp).
constexpr std::array kLatent{
    ModelType{.name = "longcat_flash",
              .class_name = "LongcatFlashForCausalLM",
              .defaults = R"({"vocab_size":131072,"hidden_size":6144,"num_layers":28,"num_attention_heads":64,"hidden_act":"silu",
"max_position_embeddings":131072,"rms_norm_eps":1e-05,"attention_bias":false,"ffn_hidden_size":12288,"q_lora_rank":1536,
"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"moe_topk":12,"n_routed_experts":512,
"zero_expert_num":256,"expert_ffn_hidden_size":2048,"routed_scaling_factor":6.0,"rope_theta":10000000.0})",
              .compose = compose_longcat_flash},
    ModelType{.name = "deepseek_v4",
              .class_name = "DeepseekV4ForCausalLM",
              .defaults = R"({"vocab_size":129280,"hidden_size":4096,"moe_intermediate_size":2048,"num_hidden_layers":43,
"num_attention_heads":64,"num_key_value_heads":1,"head_dim":512,"q_lora_rank":1024,"num_experts_per_tok":6,
"n_routed_experts":256,"routed_scaling_factor":1.5,"norm_topk_prob":true,"max_position_embeddings":1048576,
"rope_theta":10000.0,"hc_mult":4,"sliding_window":128,"o_groups":8,"o_lora_rank":1024,"index_n_heads":64,
"index_head_dim":128,"index_topk":512,"hidden_act":"silu","rms_norm_eps":1e-06,"attention_bias":false,"mlp_bias":false})",
              .compose = compose_deepseek_v4},
    ModelType{.name = "minimax_m3_vl_text",
              .class_name = "MiniMaxM3VLForCausalLM",
              .defaults = R"({"vocab_size":200064,"hidden_size":6144,"intermediate_size":3072,"num_hidden_layers":60,
"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,"hidden_act":"silu","max_position_embeddings":524288,
"rms_norm_eps":1e-06,"num_experts_per_tok":4,"num_local_experts":128,"dense_intermediate_size":12288,
"shared_intermediate_size":3072,"routed_scaling_factor":2.0,"rotary_dim":64,"rope_theta":5000000.0,"index_n_heads":4,
"index_head_dim":128,"use_qk_norm":true})",
              .compose = compose_minimax_m3},
    ModelType{.name = "unlimited_ocr_text",
              .class_name = "",
              .defaults = R"({"vocab_size":129280,"hidden_size":1280,"intermediate_size":6848,"num_hidden_layers":12,
"num_attention_heads":10,"num_key_value_heads":10,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,
"attention_bias":false,"mlp_bias":false,"n_routed_experts":64,"n_shared_experts":2,"routed_scaling_factor":1.0,
"num_experts_per_tok":6,"moe_intermediate_size":896,"sliding_window":128})",
              .compose = compose_unlimited_ocr},
    ModelType{.name = "axk1",
              .class_name = "AXK1ForCausalLM",
              .defaults = R"({"vocab_size":163840,"hidden_size":7168,"intermediate_size":18432,"moe_intermediate_size":2048,
"num_hidden_layers":61,"num_attention_heads":64,"n_shared_experts":1,"n_routed_experts":192,"routed_scaling_factor":2.5,
"kv_lora_rank":512,"q_lora_rank":1536,"qk_rope_head_dim":64,"v_head_dim":128,"qk_nope_head_dim":128,"num_experts_per_tok":8,
"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,"attention_bias":false})",
              .compose = compose_axk1},
    ModelType{.name = "hy_v4",
              .class_name = "HYV4ForCausalLM",
              .defaults = R"({"vocab_size":120832,"hidden_size":2816,"intermediate_size":6912,"moe_intermediate_size":768,
"num_hidden_layers":34,"num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":262144,
"initializer_range":0.006,"rms_norm_eps":1e-05,"attention_bias":false,"n_routed_experts":256,"n_shared_experts":1,
"num_experts_per_tok":8,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":192,"qk_rope_head_dim":64,"v_head_dim":256,
"index_topk":2048,"index_head_dim":128,"index_n_heads":16,"hc_mult":4})",
              .compose = compose_hy_v4},
    ModelType{.name = "cohere2_moe",
              .class_name = "Cohere2MoeForCausalLM",
              .defaults = R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,
"num_attention_heads":64,"head_dim":128,"hidden_act":"silu","max_position_embeddings":8192,"layer_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"num_experts_per_tok":2,"num_experts":8,"num_shared_experts":0})",
              .compose = compose_cohere2_moe},
};

}  // namespace

std::span<const ModelType> latent_model_types() {
    return kLatent;
}

}  // namespace mgplan::formats
