#include <array>

#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

/// A type whose layers are put together from parts, and that has nothing else of its own.
constexpr ModelType composed(std::string_view name, std::string_view class_name, void (*compose)(Composer&), std::string_view defaults) {
    return {.name = name, .class_name = class_name, .defaults = defaults, .compose = compose};
}

// Types composed of parts that layers here do not compute (compose_newer.cpp): name, class of "architectures", rule, class defaults.
constexpr std::array kNewer{
    composed("axk2", "AXK2ForCausalLM", compose_axk2,
             R"({"vocab_size":163840,"hidden_size":2048,"intermediate_size":5120,"moe_intermediate_size":512,"num_hidden_layers":48,
"num_attention_heads":32,"num_key_value_heads":32,"n_shared_experts":1,"n_routed_experts":128,"kv_lora_rank":128,"q_lora_rank":384,
"qk_rope_head_dim":32,"v_head_dim":64,"qk_nope_head_dim":64,"num_experts_per_tok":8,"hidden_act":"silu","max_position_embeddings":131072,
"rms_norm_eps":1e-06,"index_topk":2048,"index_head_dim":128,"index_n_heads":16,"gated_norm_rank":16})"),
    composed("jetmoe", "JetMoeForCausalLM", compose_jetmoe,
             R"({"vocab_size":32000,"hidden_size":2048,"num_hidden_layers":12,"num_key_value_heads":16,"kv_channels":128,
"intermediate_size":5632,"max_position_embeddings":4096,"activation_function":"silu","num_local_experts":8,"num_experts_per_tok":2,
"tie_word_embeddings":true,"rms_norm_eps":1e-06})"),
    composed("bailing_hybrid", "BailingHybridForCausalLM", compose_bailing_hybrid,
             R"({"vocab_size":157184,"hidden_size":2560,"intermediate_size":6144,"moe_intermediate_size":768,"num_hidden_layers":42,
"num_attention_heads":32,"n_shared_experts":1,"kv_lora_rank":512,"qk_rope_head_dim":64,"v_head_dim":128,"qk_nope_head_dim":128,
"num_experts_per_tok":8,"first_k_dense_replace":2,"hidden_act":"silu","max_position_embeddings":262144,"rms_norm_eps":1e-06,
"num_local_experts":512,"head_dim":128,"short_conv_kernel_size":4,"layer_group_size":6,"rope_theta":6000000.0})"),
    composed("mistral_large4_text", "", compose_mistral_large4,
             R"({"vocab_size":204800,"hidden_size":6144,"intermediate_size":24576,"moe_intermediate_size":6144,"num_hidden_layers":72,
"num_attention_heads":64,"n_shared_experts":1,"n_routed_experts":128,"kv_lora_rank":512,"qk_rope_head_dim":64,"v_head_dim":128,
"qk_nope_head_dim":64,"num_experts_per_tok":4,"hidden_act":"silu","max_position_embeddings":1048576,"rms_norm_eps":1e-05,
"index_topk":2048,"index_head_dim":128,"index_n_heads":32,"first_k_dense_replace":1,"final_logit_softcapping":30.0})"),
    composed("dots3_note_text", "Dots3NoteForCausalLM", compose_dots3_note,
             R"({"vocab_size":152064,"hidden_size":5120,"intermediate_size":13824,"moe_intermediate_size":1536,"num_hidden_layers":46,
"num_attention_heads":128,"n_shared_experts":1,"n_routed_experts":256,"kv_lora_rank":512,"q_lora_rank":1024,"qk_rope_head_dim":64,
"v_head_dim":128,"qk_nope_head_dim":128,"num_experts_per_tok":8,"hidden_act":"silu","max_position_embeddings":524288,
"rms_norm_eps":1e-05,"index_topk":2048,"index_head_dim":128,"index_n_heads":64,"shared_experts_intermediate_size":1536})"),
    composed("inkling_text", "InklingForCausalLM", compose_inkling,
             R"({"vocab_size":201024,"hidden_size":6144,"num_hidden_layers":66,"num_attention_heads":64,"num_key_value_heads":8,
"head_dim":128,"swa_num_attention_heads":64,"swa_num_key_value_heads":16,"swa_head_dim":128,"sliding_window_size":512,"d_rel":16,
"rel_extent":1024,"max_position_embeddings":131072,"rms_norm_eps":1e-06,"conv_kernel_size":4,"intermediate_size":24576,
"hidden_act":"silu","moe_intermediate_size":3072,"n_routed_experts":256,"num_experts_per_tok":6,"n_shared_experts":2})"),
    composed("ernie4_5_vl_moe_text", "", compose_ernie_vl,
             R"({"vocab_size":103424,"hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":28,"num_attention_heads":20,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,"tie_word_embeddings":true,
"use_bias":false,"moe_k":6,"moe_num_experts":64,"moe_num_shared_experts":2})"),
    composed("step3p5", "Step3p5ForCausalLM", compose_step35,
             R"({"vocab_size":128815,"hidden_size":4096,"intermediate_size":11264,"num_hidden_layers":45,"num_attention_heads":64,
"num_key_value_heads":8,"head_dim":128,"hidden_act":"silu","max_position_embeddings":128000,"rms_norm_eps":1e-05,
"num_experts_per_tok":8,"moe_intermediate_size":1280,"n_routed_experts":288,"share_expert_dim":1280})"),
    composed("zaya", "ZayaForCausalLM", compose_zaya,
             R"({"vocab_size":262272,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":8,"num_key_value_heads":2,
"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,"tie_word_embeddings":true,
"moe_intermediate_size":2048,"num_experts_per_tok":1,"num_experts":16,"lm_head_bias":false,"router_hidden_size":256,"cca_time0":2,
"cca_time1":2})"),
    composed("glm5_next_text", "", compose_glm5_next,
             R"({"vocab_size":154880,"hidden_size":4096,"intermediate_size":12288,"moe_intermediate_size":2048,"num_hidden_layers":45,
"num_attention_heads":64,"num_key_value_heads":64,"n_shared_experts":1,"n_routed_experts":288,"kv_lora_rank":512,"q_lora_rank":1536,
"qk_rope_head_dim":0,"v_head_dim":256,"qk_nope_head_dim":256,"num_experts_per_tok":8,"hidden_act":"silu",
"max_position_embeddings":1048576,"rms_norm_eps":1e-05,"index_topk":2048,"index_head_dim":128,"index_n_heads":32,"index_kpool":16,
"linear_head_dim":128,"linear_num_heads":64,"linear_conv_kernel_dim":4,"hc_mult":4})"),
    composed(
        "inkling2_text", "Inkling2ForCausalLM", compose_inkling2,
        R"({"vocab_size":201024,"hidden_size":4608,"num_hidden_layers":48,"num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,
"swa_num_attention_heads":48,"swa_num_key_value_heads":8,"swa_head_dim":128,"sliding_window_size":1024,"d_rel":16,"rel_extent":1024,
"max_position_embeddings":1048576,"rms_norm_eps":1e-06,"conv_kernel_size":4,"hidden_act":"silu","moe_intermediate_size":2304,
"n_routed_experts":384,"num_experts_per_tok":8,"final_logit_softcapping":30.0})"),
    composed("hrm_text", "HrmTextForCausalLM", compose_hrm_text,
             R"({"vocab_size":151808,"hidden_size":1536,"intermediate_size":4096,"num_hidden_layers":16,"num_attention_heads":12,
"head_dim":128,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06})"),
};

}  // namespace

std::span<const ModelType> newer_model_types() {
    return kNewer;
}

}  // namespace mgplan::formats
