#include <array>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/model_type_tables.hpp"

namespace mgplan::formats {
namespace {

// Types composed of attention and MLPs (compose_attention.cpp).
constexpr std::array kAttention{
    ModelType{
        .name = "apertus",
        .class_name = "ApertusForCausalLM",
        .defaults = R"({"vocab_size":131072,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"xielu","max_position_embeddings":65536,"rms_norm_eps":1e-05,"attention_bias":false,
"rope_theta":12000000.0})",
        .compose = compose_apertus},
    ModelType{.name = "bloom",
              .class_name = "BloomForCausalLM",
              .defaults =
                  R"({"vocab_size":250880,"hidden_size":64,"n_layer":2,"n_head":8,"layer_norm_epsilon":1e-05,"tie_word_embeddings":true})",
              .compose = compose_bloom},
    ModelType{
        .name = "falcon",
        .class_name = "FalconForCausalLM",
        .layer_norm = true,
        .gated = false,
        .biases = BiasRule::all,
        .attention_bias_field = "bias",
        .defaults = R"({"vocab_size":65024,"hidden_size":4544,"num_hidden_layers":32,"num_attention_heads":71,"layer_norm_epsilon":1e-05,
"alibi":false,"new_decoder_architecture":false,"multi_query":true,"parallel_attn":true,"bias":false,
"max_position_embeddings":2048,"activation":"gelu","tie_word_embeddings":true})",
        .arrange = arrange_falcon},
    ModelType{.name = "mpt",
              .class_name = "MptForCausalLM",
              .layer_norm = true,
              .gated = false,
              .biases = BiasRule::none,
              .defaults = R"({"d_model":2048,"expansion_ratio":4,"vocab_size":50368,"layer_norm_epsilon":1e-05,"no_bias":true,
"tie_word_embeddings":true})",
              .arrange = arrange_mpt},
    ModelType{.name = "gptj",
              .class_name = "GPTJForCausalLM",
              .layer_norm = true,
              .gated = false,
              .biases = BiasRule::none,
              .rotary_interleaved = true,
              .defaults = R"({"vocab_size":50400,"n_positions":2048,"n_embd":4096,"n_layer":28,"n_head":16,"rotary_dim":64,
"activation_function":"gelu_new","layer_norm_epsilon":1e-05})",
              .arrange = arrange_gptj},
    ModelType{.name = "codegen",
              .class_name = "CodeGenForCausalLM",
              .layer_norm = true,
              .gated = false,
              .biases = BiasRule::none,
              .rotary_interleaved = true,
              .defaults = R"({"vocab_size":50400,"n_positions":2048,"n_ctx":2048,"n_embd":4096,"n_layer":28,"n_head":16,"rotary_dim":64,
"activation_function":"gelu_new","layer_norm_epsilon":1e-05})",
              .arrange = arrange_gptj},
    ModelType{.name = "gpt_neo",
              .class_name = "GPTNeoForCausalLM",
              .defaults = R"({"vocab_size":50257,"max_position_embeddings":2048,"hidden_size":2048,"num_layers":24,"num_heads":16,
"activation_function":"gelu_new","layer_norm_epsilon":1e-05,"tie_word_embeddings":true})",
              .compose = compose_gpt_neo},
    ModelType{.name = "dbrx",
              .class_name = "DbrxForCausalLM",
              .defaults = R"({"d_model":2048,"vocab_size":32000,"output_router_logits":false})",
              .compose = compose_dbrx},
    ModelType{
        .name = "persimmon",
        .class_name = "PersimmonForCausalLM",
        .defaults = R"({"vocab_size":262144,"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":36,"num_attention_heads":64,
"hidden_act":"relu2","max_position_embeddings":16384,"layer_norm_eps":1e-05,"qk_layernorm":true,
"partial_rotary_factor":0.5})",
        .compose = compose_persimmon},
    ModelType{
        .name = "bitnet",
        .class_name = "BitNetForCausalLM",
        .defaults = R"({"vocab_size":128256,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":30,"num_attention_heads":20,
"num_key_value_heads":5,"hidden_act":"relu2","max_position_embeddings":2048,"rms_norm_eps":1e-05,
"attention_bias":false,"rope_theta":500000.0})",
        .compose = compose_bitnet},
    ModelType{
        .name = "diffllama",
        .class_name = "DiffLlamaForCausalLM",
        .defaults = R"({"vocab_size":32000,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-05,"attention_bias":false})",
        .compose = compose_diffllama},
    ModelType{.name = "xglm",
              .class_name = "XGLMForCausalLM",
              .learned_positions = false,
              .defaults = R"({"vocab_size":256008,"max_position_embeddings":2048,"d_model":1024,"ffn_dim":4096,"num_layers":24,
"activation_function":"gelu","dropout":0.1,"attention_dropout":0.1,"add_cross_attention":false,
"tie_word_embeddings":true})",
              .compose = compose_xglm},
    ModelType{.name = "gemma3n_text",
              .class_name = "Gemma3nForCausalLM",
              .defaults = R"({"vocab_size":262400,"hidden_size":2048,"num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":2,
"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":32768,"rms_norm_eps":1e-06,
"tie_word_embeddings":true,"attention_bias":false,"sliding_window":512,"final_logit_softcapping":30.0,
"vocab_size_per_layer_input":262144,"hidden_size_per_layer_input":256,"altup_correct_scale":true,"altup_num_inputs":4,
"num_kv_shared_layers":15,"laurel_rank":64})",
              .compose = compose_gemma3n},
    ModelType{
        .name = "gemma4_text",
        .class_name = "Gemma4ForCausalLM",
        .defaults = R"({"vocab_size":262144,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":30,"num_attention_heads":8,
"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":131072,
"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,"sliding_window":512,
"vocab_size_per_layer_input":262144,"hidden_size_per_layer_input":256,"attention_k_eq_v":false,
"num_kv_shared_layers":0,"enable_moe_block":false,"use_double_wide_mlp":false})",
        .compose = compose_gemma4},
    ModelType{
        .name = "gemma4_unified_text",
        .class_name = "Gemma4UnifiedForCausalLM",
        .defaults = R"({"vocab_size":262144,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":30,"num_attention_heads":8,
"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":262144,
"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,"sliding_window":1024,"attention_k_eq_v":false,
"num_kv_shared_layers":0,"use_double_wide_mlp":false})",
        .compose = compose_gemma4},
    ModelType{.name = "chatglm",
              .class_name = "ChatGLMModel",
              .biases = BiasRule::all,
              .attention_bias_field = "add_bias_linear",
              .rotary_interleaved = true,
              .arrange = arrange_chatglm},
    ModelType{
        .name = "olmo",
        .class_name = "OlmoForCausalLM",
        .defaults = R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,
"hidden_act":"silu","max_position_embeddings":2048,"attention_bias":false})",
        .compose = compose_norms_without_weights},
    ModelType{.name = "nanochat",
              .class_name = "NanoChatForCausalLM",
              .defaults = R"({"vocab_size":50304,"hidden_size":768,"intermediate_size":8192,"num_hidden_layers":12,"num_attention_heads":6,
"max_position_embeddings":2048,"hidden_act":"relu2","rms_norm_eps":1e-06,"final_logit_softcapping":15.0,
"attention_bias":false})",
              .compose = compose_norms_without_weights},
};

}  // namespace

std::span<const ModelType> attention_model_types() {
    return kAttention;
}

}  // namespace mgplan::formats
