#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

/// A type whose layers are composed, and that has nothing else of its own.
constexpr ModelType composed(std::string_view name, std::string_view class_name, void (*compose)(Composer&), std::string_view defaults) {
    return {.name = name, .class_name = class_name, .defaults = defaults, .compose = compose};
}

// Types of whose layers mgplan computes none or only some: name, class of "architectures", rule, class defaults.
constexpr std::array kCounted{
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
    ModelType{
        .name = "qwen4_exp_text",
        .class_name = "Qwen4ExpForCausalLM",
        .defaults = R"({"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,"num_key_value_heads":2,
"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,"attention_bias":false,"head_dim":256,
"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,
"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts_per_tok":10,"num_experts":512,"hc_count":4,
"hc_lowrank":320,"ple_conv_kernel_size":4,"ngram_size":3,"heads_per_ngram":8,"ngram_vocab_size_base":20000000,
"make_ngram_vocab_size_divisible_by":128})",
        .compose = compose_qwen4_exp},
    ModelType{
        .name = "muse_spark_text",
        .class_name = "",
        .never_tied = true,
        .defaults = R"({"vocab_size":202048,"hidden_size":8192,"intermediate_size":16384,"num_hidden_layers":62,"num_attention_heads":128,
"num_key_value_heads":16,"head_dim":64,"max_position_embeddings":1048576,"rms_norm_eps":1e-05,"hidden_act":"silu",
"moe_intermediate_size":4096,"num_local_experts":256,"num_experts_per_tok":8,"moe_hidden_size":4096,"rope_theta":500000.0})",
        .compose = compose_muse_spark},
    ModelType{
        .name = "muse_glimmer_text",
        .class_name = "",
        .windows = WindowRule::listed,
        .defaults = R"({"vocab_size":202048,"hidden_size":6656,"intermediate_size":19968,"num_hidden_layers":52,"num_attention_heads":32,
"num_key_value_heads":2,"head_dim":128,"hidden_activation":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"attention_bias":false,"sliding_window":2048,"final_logit_softcapping":20.0,"qk_scale_factor":3.87,
"output_multiplier":0.19611613513818404,"post_norm_eps":1e-08})",
        .compose = compose_muse_glimmer,
        .composed = has_attention_bias,
        .arrange = arrange_muse_glimmer,
        .left_out = "norms of queries and keys without weights"},
    ModelType{
        .name = "cohere_compass_text",
        .class_name = "CohereCompassForCausalLM",
        .layer_norm = true,
        .windows = WindowRule::listed,
        .defaults = R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,"num_attention_heads":64,
"hidden_act":"silu","max_position_embeddings":8192,"layer_norm_eps":1e-05,"tie_word_embeddings":true,"attention_bias":false,
"sliding_window":4096})",
        .arrange = arrange_cohere_compass},
    ModelType{
        .name = "zamba",
        .class_name = "ZambaForCausalLM",
        .defaults = R"({"vocab_size":32000,"tie_word_embeddings":true,"hidden_size":3712,"intermediate_size":14848,"num_hidden_layers":76,
"num_attention_heads":16,"num_key_value_heads":16,"n_mamba_heads":2,"hidden_act":"gelu","rms_norm_eps":1e-05,
"max_position_embeddings":4096,"attn_layer_period":6,"attn_layer_offset":4,"mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2})",
        .compose = compose_zamba},
    ModelType{.name = "modernbert-decoder",
              .class_name = "ModernBertDecoderForCausalLM",
              .defaults = R"({"vocab_size":50368,"hidden_size":768,"intermediate_size":1152,"num_hidden_layers":22,"num_attention_heads":12,
"hidden_activation":"gelu","max_position_embeddings":8192,"norm_eps":1e-05,"tie_word_embeddings":true})",
              .compose = compose_modernbert_decoder},
    ModelType{
        .name = "chameleon",
        .class_name = "ChameleonForConditionalGeneration",
        .defaults = R"({"vocab_size":65536,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":4096,"rms_norm_eps":1e-05})",
        .compose = compose_chameleon},
    ModelType{
        .name = "kosmos_2_text_model",
        .class_name = "",
        .defaults = R"({"vocab_size":65037,"embed_dim":2048,"layers":24,"ffn_dim":8192,"attention_heads":32,"activation_function":"gelu",
"dropout":0.1,"attention_dropout":0.1,"max_position_embeddings":2048,"layer_norm_eps":1e-05,"tie_word_embeddings":true})",
        .compose = compose_kosmos},
    ModelType{
        .name = "kosmos_2_5_text_model",
        .class_name = "",
        .defaults = R"({"vocab_size":108481,"embed_dim":1536,"layers":24,"ffn_dim":6144,"attention_heads":16,"activation_function":"gelu",
"dropout":0.1,"max_position_embeddings":4096,"layer_norm_eps":1e-05,"tie_word_embeddings":true})",
        .compose = compose_kosmos},
    ModelType{.name = "xlstm",
              .class_name = "xLSTMForCausalLM",
              .never_tied = true,
              .defaults = R"({"vocab_size":50304,"hidden_size":4096,"num_hidden_layers":32,"num_heads":8,"norm_eps":1e-06,
"ffn_round_up_to_multiple_of":64})",
              .compose = compose_xlstm},
};

}  // namespace

std::span<const ModelType> counted_model_types() {
    return kCounted;
}

}  // namespace mgplan::formats
