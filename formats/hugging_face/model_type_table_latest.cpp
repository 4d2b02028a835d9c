#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types of which layers here compute a part alone or all (compose_latest.cpp). Class defaults as in model_type_table.cpp.
constexpr std::array kLatest{
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

std::span<const ModelType> latest_model_types() {
    return kLatest;
}

}  // namespace mgplan::formats
