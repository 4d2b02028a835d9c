#include <array>

#include "importers/arrangement.hpp"
#include "importers/composer.hpp"
#include "importers/model_type_tables.hpp"

namespace mgplan::importers {
namespace {

// Types whose norms, order or multipliers differ from a llama's. Class defaults as in model_type_table.cpp.
constexpr std::array kArranged{
    ModelType{
        .name = "gemma2",
        .class_name = "Gemma2ForCausalLM",
        .windows = WindowRule::every_second,
        .defaults = R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,
"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":8192,
"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,"query_pre_attn_scalar":256,
"sliding_window":4096,"final_logit_softcapping":30.0,"attn_logit_softcapping":50.0})",
        .arrange = arrange_gemma},
    ModelType{
        .name = "gemma3_text",
        .class_name = "Gemma3ForCausalLM",
        .windows = WindowRule::all_but_nth,
        .qk_norm = true,
        .defaults =
            R"({"sliding_window_pattern":6,"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,
"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":131072,
"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,"query_pre_attn_scalar":256,
"sliding_window":4096})",
        .arrange = arrange_gemma},
    ModelType{
        .name = "vaultgemma",
        .class_name = "VaultGemmaForCausalLM",
        .windows = WindowRule::every_second,
        .defaults = R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,
"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":8192,
"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,"query_pre_attn_scalar":256,
"sliding_window":4096,"final_logit_softcapping":30.0,"attn_logit_softcapping":50.0})",
        .arrange = arrange_gemma},
    ModelType{
        .name = "glm4",
        .class_name = "Glm4ForCausalLM",
        .biases = BiasRule::qkv,
        .defaults = R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,"num_attention_heads":32,
"num_key_value_heads":2,"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1.5625e-07,
"attention_bias":true,"partial_rotary_factor":0.5})",
        .arrange = arrange_glm4},
    ModelType{
        .name = "olmo2",
        .class_name = "Olmo2ForCausalLM",
        .qk_norm_width = true,
        .defaults = R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"attention_bias":false,"rms_norm_eps":1e-05})",
        .arrange = arrange_norms_behind},
    ModelType{
        .name = "olmo3",
        .class_name = "Olmo3ForCausalLM",
        .windows = WindowRule::all_but_nth,
        .qk_norm_width = true,
        .defaults = R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"attention_bias":false,"rms_norm_eps":1e-05,"sliding_window":4096})",
        .arrange = arrange_norms_behind},
    ModelType{
        .name = "flex_olmo",
        .class_name = "FlexOlmoForCausalLM",
        .qk_norm_width = true,
        .moe = true,
        .defaults = R"({"vocab_size":100352,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":4096,"rms_norm_eps":1e-06,"attention_bias":false,
"num_experts_per_tok":5,"num_experts":7,"router_aux_loss_coef":0.01,
"norm_topk_prob":false,"rope_theta":500000.0})",
        .arrange = arrange_norms_behind},
    ModelType{
        .name = "exaone4",
        .class_name = "Exaone4ForCausalLM",
        .biases = BiasRule::none,
        .windows = WindowRule::all_but_nth,
        .qk_norm = true,
        .defaults = R"({"vocab_size":102400,"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-05,
"sliding_window":4096})",
        .arrange = arrange_norms_behind},
    ModelType{.name = "cohere",
              .class_name = "CohereForCausalLM",
              .layer_norm = true,
              .defaults = R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"logit_scale":0.0625,"num_hidden_layers":40,
"num_attention_heads":64,"hidden_act":"silu","max_position_embeddings":8192,"layer_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"use_qk_norm":false,"rope_theta":500000.0})",
              .arrange = arrange_cohere},
    ModelType{.name = "cohere2",
              .class_name = "Cohere2ForCausalLM",
              .layer_norm = true,
              .windows = WindowRule::all_but_nth,
              .defaults = R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"logit_scale":0.0625,"num_hidden_layers":40,
"num_attention_heads":64,"hidden_act":"silu","max_position_embeddings":8192,"layer_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"sliding_window":4096})",
              .arrange = arrange_cohere},
    ModelType{
        .name = "gpt_neox",
        .class_name = "GPTNeoXForCausalLM",
        .layer_norm = true,
        .gated = false,
        .biases = BiasRule::none,
        .defaults = R"({"vocab_size":50432,"hidden_size":6144,"num_hidden_layers":44,"num_attention_heads":64,"intermediate_size":24576,
"hidden_act":"gelu","max_position_embeddings":2048,"layer_norm_eps":1e-05,"use_parallel_residual":true,
"attention_bias":true,"partial_rotary_factor":0.25})",
        .arrange = arrange_gpt_neox},
    ModelType{
        .name = "phi",
        .class_name = "PhiForCausalLM",
        .layer_norm = true,
        .gated = false,
        .biases = BiasRule::none,
        .defaults = R"({"vocab_size":51200,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":32,
"hidden_act":"gelu_new","max_position_embeddings":2048,"layer_norm_eps":1e-05,"qk_layernorm":false,
"partial_rotary_factor":0.5})",
        .arrange = arrange_phi},
    ModelType{
        .name = "cwm",
        .class_name = "CwmForCausalLM",
        .biases = BiasRule::none,
        .windows = WindowRule::all_but_first,
        .defaults = R"({"vocab_size":128256,"hidden_size":6144,"intermediate_size":21504,"num_hidden_layers":64,"num_attention_heads":48,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,"mlp_bias":false,
"head_dim":128,"sliding_window":8192,"rope_theta":1000000.0})"},
    ModelType{
        .name = "iquestcoder",
        .class_name = "LlamaForCausalLM",
        .defaults = R"({"vocab_size":76800,"hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":80,"num_attention_heads":40,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"attention_bias":false,"mlp_bias":false,"head_dim":128})"},
    ModelType{
        .name = "hyperclovax",
        .class_name = "HyperCLOVAXForCausalLM",
        .defaults = R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,"attention_bias":false,"mlp_bias":false,
"embedding_multiplier":1.0,"logits_scaling":1.0,"residual_multiplier":1.0,"use_post_norm":true})",
        .arrange = arrange_hyperclovax},
    ModelType{
        .name = "granite_swa",
        .class_name = "GraniteSWAForCausalLM",
        .windows = WindowRule::all_but_first,
        .sinks = true,
        .defaults = R"({"vocab_size":100352,"hidden_size":2560,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":20,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":8192,"rms_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"mlp_bias":false,"embedding_multiplier":1.0,"logits_scaling":1.0,
"residual_multiplier":1.0,"attention_multiplier":1.0,"sliding_window":128})",
        .arrange = arrange_granite},
    ModelType{
        .name = "emu3_text_model",
        .class_name = "",
        .defaults = R"({"vocab_size":184622,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":9216,"rms_norm_eps":1e-05,
"attention_dropout":0.1,"rope_theta":1000000.0})"},
    ModelType{
        .name = "aria_text",
        .class_name = "AriaTextForCausalLM",
        .moe = true,
        .defaults = R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,"attention_bias":false,"mlp_bias":false,
"moe_num_experts":8,"moe_topk":2,"moe_num_shared_experts":2})"},
    ModelType{.name = "glm4_moe_lite",
              .class_name = "Glm4MoeLiteForCausalLM",
              .moe = true,
              .sigmoid_router = true,
              .expert_bias = true,
              .defaults =
                  R"({"vocab_size":154880,"hidden_size":2048,"intermediate_size":10240,"moe_intermediate_size":1536,"num_hidden_layers":47,
"num_attention_heads":20,"num_key_value_heads":20,"n_shared_experts":1,"n_routed_experts":64,
"output_router_logits":false,"routed_scaling_factor":1.8,"kv_lora_rank":512,"q_lora_rank":768,"qk_rope_head_dim":64,
"v_head_dim":256,"qk_nope_head_dim":192,"n_group":1,"topk_group":1,"num_experts_per_tok":4,"norm_topk_prob":true,
"hidden_act":"silu","max_position_embeddings":202752,"rms_norm_eps":1e-05,"attention_bias":false})"},
    ModelType{
        .name = "hunyuan_v1_dense",
        .class_name = "HunYuanDenseV1ForCausalLM",
        .qk_norm = true,
        .defaults = R"({"vocab_size":290943,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-05,"attention_bias":false})",
        .left_out = "norms of queries and keys behind the rotary positions in place of in front of them"},
    ModelType{
        .name = "minicpm3",
        .class_name = "MiniCPM3ForCausalLM",
        .defaults = R"({"vocab_size":73448,"hidden_size":2560,"intermediate_size":6400,"num_hidden_layers":62,"num_attention_heads":40,
"num_key_value_heads":40,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"mlp_bias":false,"kv_lora_rank":256,"q_lora_rank":768,
"qk_nope_head_dim":64,"v_head_dim":64,"qk_rope_head_dim":32,"scale_emb":12})",
        .arrange = arrange_minicpm},
    ModelType{
        .name = "glm4v_text",
        .class_name = "",
        .biases = BiasRule::qkv_always,
        .defaults = R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,"num_attention_heads":32,
"num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-05})",
        .arrange = arrange_glm4},
    ModelType{
        .name = "paddleocr_vl_text",
        .class_name = "",
        .biases = BiasRule::all,
        .defaults = R"({"vocab_size":103424,"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":18,"num_attention_heads":16,
"num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
"tie_word_embeddings":true,"use_bias":false,"head_dim":128,"rope_theta":500000.0})"},
    ModelType{
        .name = "granite_docling_text",
        .class_name = "",
        .defaults = R"({"vocab_size":133800,"hidden_size":1024,"intermediate_size":2048,"num_hidden_layers":28,"num_attention_heads":16,
"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-05,
"tie_word_embeddings":true,"attention_bias":false,"mlp_bias":false,"embedding_multiplier":12.0,"logits_scaling":4.0,
"residual_multiplier":0.263,"attention_multiplier":0.015625})",
        .arrange = arrange_granite},
};

}  // namespace

std::span<const ModelType> arranged_model_types() {
    return kArranged;
}

}  // namespace mgplan::importers
