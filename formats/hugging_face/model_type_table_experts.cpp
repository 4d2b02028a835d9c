#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types composed of attention and experts (compose_experts.cpp).
constexpr std::array kSparse{
    ModelType{
        .name = "afmoe",
        .class_name = "AfmoeForCausalLM",
        .defaults = R"({"vocab_size":200192,"hidden_size":2048,"intermediate_size":6144,"moe_intermediate_size":1408,"num_hidden_layers":32,
"num_dense_layers":1,"num_attention_heads":16,"head_dim":128,"hidden_act":"silu","max_position_embeddings":16384,
"rms_norm_eps":1e-05,"num_experts":64,"num_experts_per_tok":6,"num_shared_experts":2,"output_router_logits":false,
"sliding_window":1024,"attention_bias":false})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "beam",
        .class_name = "BeamForCausalLM",
        .defaults = R"({"vocab_size":151936,"hidden_size":5120,"intermediate_size":20480,"num_hidden_layers":52,"num_attention_heads":48,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":8192,"rms_norm_eps":1e-06,
"attention_bias":false,"sliding_window":512,"moe_intermediate_size":2560,"num_experts_per_tok":8,"num_experts":256,
"norm_topk_prob":true,"output_router_logits":false,"head_dim":128,"n_group":8,"topk_group":4,
"routed_scaling_factor":2.5,"final_logit_softcapping":30.0})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "hy_v3",
        .class_name = "HYV3ForCausalLM",
        .defaults = R"({"vocab_size":120832,"hidden_size":4096,"intermediate_size":13312,"num_hidden_layers":80,"num_attention_heads":64,
"num_key_value_heads":8,"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"attention_bias":false,"mlp_bias":false,"num_experts":192,"num_experts_per_tok":8,"num_shared_experts":1,
"moe_intermediate_size":1536,"output_router_logits":false,"rope_theta":11158840.0})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "exaone_moe",
        .class_name = "ExaoneMoeForCausalLM",
        .defaults = R"({"vocab_size":102400,"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-05,
"sliding_window":4096,"first_k_dense_replace":1,"moe_intermediate_size":1024,"num_experts":64,"num_experts_per_tok":8,
"output_router_logits":false,"num_shared_experts":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,"n_group":1,
"topk_group":1})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "mellum",
        .class_name = "MellumForCausalLM",
        .defaults = R"({"vocab_size":98304,"hidden_size":2304,"intermediate_size":7168,"num_hidden_layers":28,"num_attention_heads":32,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-06,
"attention_bias":false,"sliding_window":1024,"moe_intermediate_size":896,"num_experts_per_tok":8,
"norm_topk_prob":true,"output_router_logits":false,"router_aux_loss_coef":0.001,"head_dim":128})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "kolibri1",
        .class_name = "Kolibri1ForCausalLM",
        .defaults = R"({"vocab_size":128000,"hidden_size":2560,"num_hidden_layers":50,"num_attention_heads":48,"num_key_value_heads":4,
"hidden_act":"silu","max_position_embeddings":262144,"rms_norm_eps":1e-06,"sliding_window":513,
"moe_intermediate_size":512,"num_experts_per_tok":6,"norm_topk_prob":false,"output_router_logits":false,
"head_dim":128,"shared_expert_intermediate_size":512})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "laguna",
        .class_name = "LagunaForCausalLM",
        .defaults = R"({"vocab_size":100352,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":40,"num_attention_heads":48,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-06,
"sliding_window":512,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts_per_tok":8,
"num_experts":256,"output_router_logits":false,"router_aux_loss_coef":0.001,"head_dim":128,"attention_bias":false})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "flint",
        .class_name = "FlintForCausalLM",
        .defaults = R"({"vocab_size":150144,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":49,"num_attention_heads":32,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":262144,"rms_norm_eps":1e-06,
"sliding_window":513,"decoder_sparse_step":1,"moe_intermediate_size":512,"shared_expert_intermediate_size":1024,
"num_experts_per_tok":6,"num_experts":256,"norm_topk_prob":true,"output_router_logits":false,
"router_aux_loss_coef":0.0005,"head_dim":128,"attention_bias":false})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "granitemoe_swa",
        .class_name = "GraniteMoeSWAForCausalLM",
        .defaults = R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,"attention_bias":false,
"embedding_multiplier":1.0,"logits_scaling":1.0,"residual_multiplier":1.0,"attention_multiplier":1.0,
"num_local_experts":8,"num_experts_per_tok":2,"output_router_logits":false,"router_aux_loss_coef":0.001,
"shared_intermediate_size":0,"sliding_window":128})",
        .compose = compose_sparse_decoder},
    ModelType{
        .name = "ernie4_5_moe",
        .class_name = "Ernie4_5_MoeForCausalLM",
        .biases = BiasRule::all,
        .moe = true,
        .expert_bias = true,
        .rotary_interleaved = true,
        .defaults = R"({"vocab_size":103424,"hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":28,"num_attention_heads":20,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"tie_word_embeddings":true,"use_bias":false,"moe_intermediate_size":1536,"moe_k":6,"moe_num_experts":64,
"moe_num_shared_experts":2,"moe_layer_start_index":1,"moe_layer_interval":1,"output_router_logits":false,
"router_aux_loss_coef":0.001,"rope_theta":500000.0})",
        .arrange = arrange_ernie_moe},
    ModelType{
        .name = "phimoe",
        .class_name = "PhimoeForCausalLM",
        .defaults = R"({"vocab_size":32064,"hidden_size":4096,"intermediate_size":6400,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"num_experts_per_tok":2,"num_local_experts":16,"output_router_logits":false,"router_aux_loss_coef":0.001,
"attention_bias":false,"lm_head_bias":false,"rope_theta":1000000.0})",
        .compose = compose_phimoe},
    ModelType{.name = "deepseek_v32",
              .class_name = "DeepseekV32ForCausalLM",
              .moe = true,
              .sigmoid_router = true,
              .expert_bias = true,
              .rotary_interleaved = true,
              .indexed = true,
              .defaults =
                  R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,"moe_intermediate_size":2048,"num_hidden_layers":61,
"num_attention_heads":128,"num_key_value_heads":128,"n_shared_experts":1,"n_routed_experts":256,
"output_router_logits":false,"routed_scaling_factor":2.5,"kv_lora_rank":512,"q_lora_rank":1536,"qk_rope_head_dim":64,
"v_head_dim":128,"qk_nope_head_dim":128,"n_group":8,"topk_group":4,"num_experts_per_tok":8,"norm_topk_prob":true,
"hidden_act":"silu","max_position_embeddings":163840,"rms_norm_eps":1e-06,"attention_bias":false,"index_topk":2048,
"index_head_dim":128,"index_n_heads":64,"mlp_bias":false,"head_dim":64,"first_k_dense_replace":3})",
              .compose = compose_indexed_latent,
              .composed = shares_indexers},
    ModelType{.name = "glm_moe_dsa",
              .class_name = "GlmMoeDsaForCausalLM",
              .moe = true,
              .sigmoid_router = true,
              .expert_bias = true,
              .rotary_interleaved = true,
              .indexed = true,
              .defaults =
                  R"({"vocab_size":154880,"hidden_size":6144,"intermediate_size":12288,"moe_intermediate_size":2048,"num_hidden_layers":78,
"num_attention_heads":64,"num_key_value_heads":64,"n_shared_experts":1,"n_routed_experts":256,
"output_router_logits":false,"routed_scaling_factor":2.5,"kv_lora_rank":512,"q_lora_rank":2048,"qk_rope_head_dim":64,
"v_head_dim":256,"qk_nope_head_dim":192,"n_group":1,"topk_group":1,"num_experts_per_tok":8,"norm_topk_prob":true,
"hidden_act":"silu","max_position_embeddings":202752,"rms_norm_eps":1e-05,"attention_bias":false,"index_topk":2048,
"index_head_dim":128,"index_n_heads":32,"mlp_bias":false,"head_dim":64,"first_k_dense_replace":3})",
              .compose = compose_indexed_latent,
              .composed = shares_indexers},
    ModelType{
        .name = "hunyuan_v1_moe",
        .class_name = "HunYuanMoEV1ForCausalLM",
        .qk_norm = true,
        .moe = true,
        .defaults = R"({"vocab_size":290943,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-05,"attention_bias":false,"num_experts":1,
"output_router_logits":false,"moe_topk":1})",
        .arrange = arrange_hunyuan_moe},
    ModelType{
        .name = "mimo_v2_flash",
        .class_name = "MiMoV2FlashForCausalLM",
        .defaults = R"({"vocab_size":152576,"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":48,"num_attention_heads":64,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"attention_bias":false,"moe_intermediate_size":2048,"num_experts_per_tok":8,"output_router_logits":false,
"n_routed_experts":256,"routed_scaling_factor":1.0,"n_group":1,"topk_group":1,"norm_topk_prob":true,"head_dim":192,
"v_head_dim":128,"sliding_window":129})",
        .compose = compose_mimo_flash},
};

}  // namespace

std::span<const ModelType> sparse_model_types() {
    return kSparse;
}

}  // namespace mgplan::formats
