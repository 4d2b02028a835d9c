#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types with a state along the sequence (compose_hybrids.cpp).
constexpr std::array kHybrids{
    ModelType{
        .name = "mamba",
        .class_name = "MambaForCausalLM",
        .defaults = R"({"vocab_size":50280,"hidden_size":768,"state_size":16,"num_hidden_layers":32,"layer_norm_epsilon":1e-05,"expand":2,
"conv_kernel":4,"use_bias":false,"use_conv_bias":true,"hidden_act":"silu","tie_word_embeddings":true})",
        .compose = compose_mamba},
    ModelType{
        .name = "falcon_mamba",
        .class_name = "FalconMambaForCausalLM",
        .defaults = R"({"vocab_size":50280,"hidden_size":768,"state_size":16,"num_hidden_layers":32,"layer_norm_epsilon":1e-05,"expand":2,
"conv_kernel":4,"use_bias":false,"use_conv_bias":true,"hidden_act":"silu","tie_word_embeddings":true})",
        .compose = compose_mamba},
    ModelType{.name = "mamba2",
              .class_name = "Mamba2ForCausalLM",
              .defaults = R"({"num_heads":128,"head_dim":64,"vocab_size":32768,"hidden_size":4096,"state_size":128,"num_hidden_layers":64,
"layer_norm_epsilon":1e-05,"expand":2,"conv_kernel":4,"n_groups":8,"use_bias":false,"use_conv_bias":true,
"hidden_act":"silu"})",
              .compose = compose_mamba2},
    ModelType{
        .name = "bamba",
        .class_name = "BambaForCausalLM",
        .defaults = R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","rms_norm_eps":1e-05,"max_position_embeddings":262144,"mamba_n_heads":128,
"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,
"mamba_proj_bias":false,"attention_bias":false,"mlp_bias":false,"partial_rotary_factor":0.5})",
        .compose = compose_bamba},
    ModelType{
        .name = "falcon_h1",
        .class_name = "FalconH1ForCausalLM",
        .defaults = R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","rms_norm_eps":1e-05,"max_position_embeddings":8192,"mamba_d_ssm":1024,
"mamba_n_heads":128,"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,
"mamba_proj_bias":false,"mamba_rms_norm":false,"mamba_norm_before_gate":true,"projectors_bias":false,"embedding_multiplier":1.0,
"attention_bias":false,"mlp_bias":false})",
        .compose = compose_falcon_h1},
    ModelType{
        .name = "granitemoehybrid",
        .class_name = "GraniteMoeHybridForCausalLM",
        .defaults = R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,"attention_bias":false,
"embedding_multiplier":1.0,"logits_scaling":1.0,"residual_multiplier":1.0,"attention_multiplier":1.0,
"num_local_experts":8,"num_experts_per_tok":2,"output_router_logits":false,"router_aux_loss_coef":0.001,
"shared_intermediate_size":1024,"mamba_n_heads":128,"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,
"mamba_expand":2,"mamba_conv_bias":true,"mamba_proj_bias":false})",
        .compose = compose_granite_hybrid,
        .arrange = arrange_granite},
    ModelType{
        .name = "jamba",
        .class_name = "JambaForCausalLM",
        .defaults = R"({"vocab_size":65536,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","rms_norm_eps":1e-06,"output_router_logits":false,
"router_aux_loss_coef":0.001,"max_position_embeddings":262144,"num_experts_per_tok":2,"num_experts":16,
"expert_layer_period":2,"expert_layer_offset":1,"attn_layer_period":8,"attn_layer_offset":4,"mamba_d_state":16,
"mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,"mamba_proj_bias":false})",
        .compose = compose_jamba},
    ModelType{.name = "nemotron_h",
              .class_name = "NemotronHForCausalLM",
              .sigmoid_router = true,
              .expert_bias = true,
              .never_tied = true,
              .defaults = R"({"vocab_size":131072,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,
"max_position_embeddings":4096,"attention_bias":false,"intermediate_size":21504,"mlp_bias":false,"ssm_state_size":128,
"mamba_num_heads":128,"mamba_head_dim":64,"n_groups":8,"conv_kernel":4,"expand":2,"use_conv_bias":true,
"mamba_proj_bias":false,"n_routed_experts":8,"output_router_logits":false,"n_shared_experts":1,
"moe_intermediate_size":7688,"moe_shared_expert_intermediate_size":7688,"num_experts_per_tok":2,
"routed_scaling_factor":1.0,"n_group":1,"topk_group":1,"norm_topk_prob":true,"num_nextn_predict_layers":0,
"use_bias":false,"layer_norm_epsilon":1e-05})",
              .compose = compose_nemotron_h},
    ModelType{
        .name = "zamba2",
        .class_name = "Zamba2ForCausalLM",
        .defaults = R"({"vocab_size":32000,"max_position_embeddings":4096,"hidden_size":2560,"num_hidden_layers":54,"mamba_d_state":64,
"mamba_d_conv":4,"mamba_expand":2,"mamba_ngroups":1,"n_mamba_heads":8,"use_conv_bias":true,"add_bias_linear":false,
"hidden_act":"gelu","num_attention_heads":32,"num_mem_blocks":1,"use_shared_attention_adapter":false,
"adapter_rank":128,"rms_norm_eps":1e-05,"tie_word_embeddings":true})",
        .compose = compose_zamba2},
    ModelType{
        .name = "qwen3_next",
        .class_name = "Qwen3NextForCausalLM",
        .defaults = R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":48,"num_attention_heads":16,
"num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,
"attention_bias":false,"head_dim":256,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"decoder_sparse_step":1,
"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts_per_tok":10,"num_experts":512,
"norm_topk_prob":true,"output_router_logits":false,"router_aux_loss_coef":0.001,"partial_rotary_factor":0.25})",
        .compose = compose_delta_hybrid},
    ModelType{
        .name = "qwen3_5_text",
        .class_name = "Qwen3_5ForCausalLM",
        .defaults = R"({"vocab_size":248320,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":32,"num_attention_heads":16,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,
"attention_bias":false,"head_dim":256,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"partial_rotary_factor":0.25})",
        .compose = compose_delta_hybrid},
    ModelType{
        .name = "qwen3_5_moe_text",
        .class_name = "Qwen3_5MoeForCausalLM",
        .defaults = R"({"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,"num_key_value_heads":2,
"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,"attention_bias":false,"head_dim":256,
"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,
"linear_num_value_heads":32,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts_per_tok":8,
"num_experts":256,"output_router_logits":false,"router_aux_loss_coef":0.001,"partial_rotary_factor":0.25})",
        .compose = compose_delta_hybrid},
    ModelType{
        .name = "olmo_hybrid",
        .class_name = "OlmoHybridForCausalLM",
        .defaults = R"({"vocab_size":100352,"hidden_size":3840,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":30,
"hidden_act":"silu","max_position_embeddings":65536,"rms_norm_eps":1e-06,"attention_bias":false,
"linear_conv_kernel_dim":4})",
        .compose = compose_olmo_hybrid},
    ModelType{
        .name = "kimi_linear",
        .class_name = "KimiLinearForCausalLM",
        .sigmoid_router = true,
        .expert_bias = true,
        .never_tied = true,
        .defaults = R"({"vocab_size":163840,"hidden_size":2304,"intermediate_size":9216,"moe_intermediate_size":1024,"num_hidden_layers":27,
"num_attention_heads":32,"num_key_value_heads":32,"output_router_logits":false,"routed_scaling_factor":2.446,
"kv_lora_rank":512,"qk_rope_head_dim":64,"v_head_dim":128,"qk_nope_head_dim":128,"topk_group":1,"hidden_act":"silu",
"rms_norm_eps":1e-05,"attention_bias":false,"linear_head_dim":128,"linear_num_heads":32,"linear_conv_kernel_dim":4})",
        .compose = compose_kimi_linear},
    ModelType{
        .name = "lfm2",
        .class_name = "Lfm2ForCausalLM",
        .defaults = R"({"vocab_size":65536,"hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"max_position_embeddings":128000,"norm_eps":1e-05,"tie_word_embeddings":true,
"conv_bias":false,"conv_L_cache":3,"block_multiple_of":256,"block_ffn_dim_multiplier":1.0,
"block_auto_adjust_ff_dim":true,"rope_theta":1000000.0})",
        .compose = compose_lfm2,
        .arrange = arrange_lfm2},
    ModelType{
        .name = "lfm2_moe",
        .class_name = "Lfm2MoeForCausalLM",
        .sigmoid_router = true,
        .expert_bias = true,
        .defaults = R"({"vocab_size":65536,"hidden_size":2048,"intermediate_size":7168,"moe_intermediate_size":1792,"num_hidden_layers":32,
"tie_word_embeddings":true,"max_position_embeddings":128000,"norm_eps":1e-05,"num_attention_heads":32,
"num_key_value_heads":8,"conv_bias":false,"conv_L_cache":3,"num_dense_layers":2,"num_experts_per_tok":4,
"output_router_logits":false,"num_experts":32,"routed_scaling_factor":1.0,"norm_topk_prob":true,
"rope_theta":1000000.0})",
        .compose = compose_lfm2,
        .arrange = arrange_lfm2},
    ModelType{
        .name = "lfm3",
        .class_name = "Lfm3ForCausalLM",
        .defaults = R"({"vocab_size":128000,"hidden_size":2048,"intermediate_size":7680,"num_hidden_layers":24,"num_attention_heads":16,
"num_key_value_heads":4,"head_dim":128,"max_position_embeddings":128000,"norm_eps":1e-05,"tie_word_embeddings":true,
"conv_bias":false,"conv_L_cache":7,"use_sandwich_norm":true,"use_attention_gate":true,"attention_bias":false})",
        .compose = compose_lfm3},
    ModelType{
        .name = "minimax",
        .class_name = "MiniMaxForCausalLM",
        .defaults = R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"num_experts_per_tok":2,"num_local_experts":8,"output_router_logits":false,"router_aux_loss_coef":0.001,
"rope_theta":1000000.0})",
        .compose = compose_minimax},
    ModelType{
        .name = "recurrent_gemma",
        .class_name = "RecurrentGemmaForCausalLM",
        .defaults = R"({"num_hidden_layers":26,"vocab_size":256000,"hidden_size":2560,"intermediate_size":7680,"num_attention_heads":10,
"conv1d_width":4,"rms_norm_eps":1e-06,"hidden_activation":"gelu_pytorch_tanh","attention_bias":false,
"tie_word_embeddings":true,"partial_rotary_factor":0.5,"logits_soft_cap":30.0})",
        .compose = compose_recurrent_gemma},
};

}  // namespace

std::span<const ModelType> hybrid_model_types() {
    return kHybrids;
}

}  // namespace mgplan::formats
