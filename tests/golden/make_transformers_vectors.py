#!/usr/bin/env python3
"""Writes data/transformers/*.safetensors: small random models of Hugging Face transformers, their loss and their gradients.

    python3 -m venv VENV && VENV/bin/pip install torch transformers safetensors
    VENV/bin/python tests/golden/make_transformers_vectors.py [--out FOLDER] [NAME ...]

Each file is one model: "weight/NAME" (bf16, read as they are into fp32) and "gradient/NAME" (fp32) of every tensor under the names that
save_pretrained() gives it, "tokens" (int32, a row for each sequence), and in the metadata the config as transformers writes it, the loss
and the versions. The loss is the mean cross-entropy of each token from the second on, without auxiliary losses, in fp32. Nothing here comes
from mgplan. tests/model/training/transformers_vectors_test.cpp compares; it needs neither Python nor transformers.
"""
import argparse
import copy
import json
import pathlib
import re
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

SEQUENCES, LENGTH = 2, 12

# Sizes that most classes share. Widths are odd multiples, so that no two of them are equal by chance and tp = 2 divides them.
BASE = dict(vocab_size=44, hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=32, attention_dropout=0.0, num_nextn_predict_layers=0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
HEADS = dict(BASE, head_dim=8)  # another width than hidden_size / num_attention_heads
ALL_HEADS = dict(BASE, num_key_value_heads=4)
EXPERTS = dict(HEADS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
LATENT = dict(ALL_HEADS, kv_lora_rank=10, q_lora_rank=12, qk_rope_head_dim=4, v_head_dim=6, qk_nope_head_dim=8)
DEEPSEEK = dict(LATENT, n_routed_experts=8, num_experts_per_tok=4, moe_intermediate_size=12, n_shared_experts=1, first_k_dense_replace=1,
                routed_scaling_factor=2.5, n_group=4, topk_group=2, norm_topk_prob=True)
GPT = dict(vocab_size=44, n_embd=24, n_layer=2, n_head=4, n_positions=32, n_inner=40, resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0,
           bos_token_id=1, eos_token_id=2)
MAMBA = dict(mamba_d_state=6, mamba_d_conv=4, mamba_expand=2, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2)
DELTA = dict(HEADS, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_key_head_dim=6,
             linear_num_value_heads=4, linear_value_head_dim=4, linear_conv_kernel_dim=4)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 4.0, "beta_slow": 1.0}

# name -> (model_type, fields). A name that begins with the type adds what is special.
MODELS = {
    "llama": ("llama", HEADS),
    "llama-tied-biased-llama3": ("llama", dict(BASE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3)),
    "llama-linear": ("llama", dict(BASE, rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0})),
    "llama-yarn": ("llama", dict(HEADS, rope_parameters=YARN)),
    "mistral": ("mistral", dict(HEADS, sliding_window=5)),
    "ministral": ("ministral", dict(HEADS, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "mixtral": ("mixtral", dict(HEADS, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2": ("qwen2", dict(HEADS, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen2_moe": ("qwen2_moe", dict(BASE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16,
                                    norm_topk_prob=True)),
    "qwen2_moe-unnormalised": ("qwen2_moe", dict(BASE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                                 shared_expert_intermediate_size=16, norm_topk_prob=False)),
    "qwen3": ("qwen3", HEADS),
    "qwen3_moe": ("qwen3_moe", dict(EXPERTS, norm_topk_prob=True)),
    "deepseek_v2": ("deepseek_v2", dict(DEEPSEEK, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
                                        routed_scaling_factor=1.5)),
    "deepseek_v2-groups": ("deepseek_v2", dict(DEEPSEEK, topk_method="group_limited_greedy", q_lora_rank=None, norm_topk_prob=False)),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "deepseek_v3-yarn": ("deepseek_v3", dict(DEEPSEEK, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3-halves": ("deepseek_v3", dict(DEEPSEEK, rope_interleave=False, q_lora_rank=None)),
    "glm4_moe": ("glm4_moe", dict(HEADS, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=1,
                                  first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5)),
    "glm4_moe_lite": ("glm4_moe_lite", dict(DEEPSEEK, mlp_layer_types=["dense", "sparse"])),
    "solar_open": ("solar_open", dict(HEADS, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=1)),
    "dots1": ("dots1", dict(HEADS, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=1,
                            first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, sliding_window=5, max_window_layers=1)),
    "minimax_m2": ("minimax_m2", dict(HEADS, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4)),
    "olmoe": ("olmoe", dict(ALL_HEADS, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)),
    "olmoe-unnormalised": ("olmoe", dict(BASE, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False)),
    "flex_olmo": ("flex_olmo", dict(BASE, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False)),
    "phi3": ("phi3", dict(BASE, hidden_size=32, partial_rotary_factor=0.5, sliding_window=5, resid_pdrop=0.0, embd_pdrop=0.0)),
    "granite": ("granite", dict(BASE, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0,
                                tie_word_embeddings=True)),
    "granite_swa": ("granite_swa", dict(BASE, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3,
                                        logits_scaling=2.0, sliding_window=5)),
    "granitemoe": ("granitemoe", dict(BASE, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0,
                                      residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0)),
    "granitemoeshared": ("granitemoeshared", dict(BASE, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16)),
    "smollm3": ("smollm3", dict(HEADS, no_rope_layers=[1, 0])),
    "seed_oss": ("seed_oss", dict(HEADS, attention_bias=True, attention_out_bias=True, residual_dropout=0.0)),
    "ernie4_5_moe": ("ernie4_5_moe", dict(HEADS, moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=1,
                                          moe_layer_start_index=1, num_hidden_layers=3, use_bias=False)),
    "ernie4_5": ("ernie4_5", dict(HEADS, use_bias=False)),
    "helium": ("helium", dict(ALL_HEADS, head_dim=6)),
    "arcee": ("arcee", HEADS),
    "gemma": ("gemma", HEADS),
    "gemma2": ("gemma2", dict(HEADS, sliding_window=5, query_pre_attn_scalar=12, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma2-uncapped": ("gemma2", dict(HEADS, sliding_window=5, query_pre_attn_scalar=12, attn_logit_softcapping=None,
                                       final_logit_softcapping=None)),
    "vaultgemma": ("vaultgemma", dict(HEADS, sliding_window=5, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
                                      final_logit_softcapping=3.0)),
    "gemma3_text": ("gemma3_text", dict(HEADS, sliding_window=5, query_pre_attn_scalar=12,
                                        layer_types=["sliding_attention", "full_attention"],
                                        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                                         "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}})),
    "stablelm": ("stablelm", dict(BASE, hidden_size=32, use_qkv_bias=True, partial_rotary_factor=0.5, hidden_dropout=0.0)),
    "stablelm-parallel": ("stablelm", dict(BASE, hidden_size=32, use_parallel_residual=True, partial_rotary_factor=0.5,
                                               hidden_dropout=0.0)),
    "stablelm-qk_norm": ("stablelm", dict(BASE, hidden_size=32, use_parallel_residual=True, qk_layernorm=True, partial_rotary_factor=0.5,
                                          hidden_dropout=0.0)),
    "starcoder2": ("starcoder2", dict(BASE, sliding_window=5, residual_dropout=0.0, embedding_dropout=0.0)),
    "gpt2": ("gpt2", GPT),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "opt": ("opt", dict(vocab_size=44, hidden_size=24, word_embed_proj_dim=24, num_hidden_layers=2, ffn_dim=40, num_attention_heads=4,
                        max_position_embeddings=32, dropout=0.0, pad_token_id=1, bos_token_id=2, eos_token_id=2)),
    "olmo": ("olmo", BASE),
    "olmo-clipped": ("olmo", dict(BASE, clip_qkv=0.7, tie_word_embeddings=True)),
    "apertus": ("apertus", dict(BASE, rope_parameters=LLAMA3)),
    "olmo_hybrid": ("olmo_hybrid", dict(DELTA, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                        rms_norm_eps=1e-3, rope_parameters=None)),
    "olmo_hybrid-turned": ("olmo_hybrid", dict(DELTA, linear_allow_neg_eigval=False,
                                               rope_parameters={"rope_type": "default", "rope_theta": 5000.0})),
    "dbrx": ("dbrx", dict(vocab_size=44, d_model=24, n_heads=4, n_layers=2, max_seq_len=32, resid_pdrop=0.0, emb_pdrop=0.0, pad_token_id=0,
                          attn_config={"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 5000.0, "attn_pdrop": 0.0},
                          ffn_config={"ffn_hidden_size": 12, "moe_num_experts": 4, "moe_top_k": 2})),
    "glm": ("glm", dict(HEADS, partial_rotary_factor=0.5)),
    "glm4": ("glm4", dict(HEADS, partial_rotary_factor=0.5)),
    "jais2": ("jais2", HEADS),
    "nemotron": ("nemotron", dict(HEADS, partial_rotary_factor=0.5)),
    "olmo2": ("olmo2", BASE),
    "olmo3": ("olmo3", dict(BASE, num_hidden_layers=2, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                            rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                             "full_attention": dict(YARN, rope_theta=5000.0)})),
    "exaone4": ("exaone4", dict(BASE, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "cohere": ("cohere", dict(BASE, logit_scale=0.25)),
    "cohere-qk_norm": ("cohere", dict(BASE, logit_scale=0.25, use_qk_norm=True)),
    "cohere2": ("cohere2", dict(BASE, logit_scale=0.25, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "cohere_compass_text": ("cohere_compass_text", dict(BASE, num_hidden_layers=3, logit_scale=0.5, sliding_window=5, attention_bias=True,
                                                        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                                        rope_parameters={"full_attention": None,
                                                                         "sliding_attention": {"rope_type": "default",
                                                                                               "rope_theta": 5000.0}})),
    "cohere_compass_text-turned": ("cohere_compass_text", dict(BASE, tie_word_embeddings=False,
                                                               layer_types=["full_attention", "sliding_attention"], sliding_window=5,
                                                               rope_parameters={"full_attention": {"rope_type": "linear",
                                                                                                   "rope_theta": 10000.0,
                                                                                                   "factor": 2.0},
                                                                                "sliding_attention": {"rope_type": "default",
                                                                                                      "rope_theta": 100.0}})),
    "gpt_neox": ("gpt_neox", dict(BASE, hidden_size=32, rotary_pct=0.5, hidden_dropout=0.0, classifier_dropout=0.0)),
    "gpt_neox-sequential": ("gpt_neox", dict(BASE, hidden_size=32, use_parallel_residual=False, hidden_dropout=0.0, classifier_dropout=0.0)),
    "phi": ("phi", dict(BASE, hidden_size=32, partial_rotary_factor=0.5, resid_pdrop=0.0, embd_pdrop=0.0)),
    "falcon": ("falcon", dict(vocab_size=44, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, multi_query=True, parallel_attn=True,
                              bias=True, hidden_dropout=0.0, attention_dropout=0.0, bos_token_id=1, eos_token_id=2)),
    "falcon-grouped": ("falcon", dict(vocab_size=44, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                      new_decoder_architecture=True, ffn_hidden_size=40, hidden_dropout=0.0, attention_dropout=0.0,
                                      bos_token_id=1, eos_token_id=2)),
    "gptj": ("gptj", dict(GPT, n_embd=32, rotary_dim=4, tie_word_embeddings=False)),
    "cwm": ("cwm", dict(HEADS, sliding_window=5, layer_types=["full_attention", "sliding_attention"])),
    "hyperclovax": ("hyperclovax", dict(BASE, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3,
                                        logits_scaling=2.0)),
    "minicpm3": ("minicpm3", dict(LATENT, scale_emb=3, scale_depth=1.4, dim_model_base=12)),
    "youtu": ("youtu", LATENT),
    "exaone_moe": ("exaone_moe", dict(HEADS, num_experts=8, num_experts_per_tok=4, moe_intermediate_size=12, num_shared_experts=1, n_group=4,
                                      topk_group=2, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "flint": ("flint", dict(EXPERTS, shared_expert_intermediate_size=10, sliding_window=5, mlp_only_layers=[0], norm_topk_prob=True,
                            layer_types=["full_attention", "sliding_attention"])),
    "granitemoe_swa": ("granitemoe_swa", dict(BASE, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16, sliding_window=5,
                                              embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0,
                                              layer_rope_theta=[0, 5000.0])),
    "hy_v3": ("hy_v3", dict(EXPERTS, num_shared_experts=1, mlp_layer_types=["dense", "sparse"], router_scaling_factor=1.5)),
    "mellum": ("mellum", dict(EXPERTS, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                              mlp_layer_types=["sparse", "dense"])),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", HEADS),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(HEADS, num_experts=4, moe_topk=2,
                                              rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 3.0})),
    "gpt_oss": ("gpt_oss", dict(HEADS, num_local_experts=4, num_experts_per_tok=2, sliding_window=5)),
    "aria_text": ("aria_text", dict(HEADS, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=2)),
    "mamba2": ("mamba2", dict(vocab_size=44, hidden_size=24, num_hidden_layers=2, state_size=6, expand=2, num_heads=6, head_dim=8, n_groups=1,
                              conv_kernel=4, chunk_size=8, use_bias=False, use_conv_bias=True, pad_token_id=0)),
    "bamba": ("bamba", dict(BASE, **dict(MAMBA, mamba_n_heads=8), hidden_size=32, attn_layer_indices=[1], mamba_chunk_size=8)),
    "granitemoehybrid": ("granitemoehybrid", dict(BASE, **MAMBA, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16,
                                                  layer_types=["mamba", "attention"], mamba_chunk_size=8, embedding_multiplier=3.0,
                                                  residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0)),
    "granitemoehybrid-dense": ("granitemoehybrid", dict(BASE, **MAMBA, num_local_experts=0, shared_intermediate_size=28,
                                                        layer_types=["mamba", "attention"], mamba_chunk_size=8)),
    "nemotron_h": ("nemotron_h", dict(HEADS, layers_block_type=["mamba", "mlp", "attention", "moe"], num_hidden_layers=4, ssm_state_size=6,
                                      mamba_num_heads=6, mamba_head_dim=8, n_groups=2, conv_kernel=4, chunk_size=8, expand=2,
                                      n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                      moe_shared_expert_intermediate_size=16, routed_scaling_factor=1.5)),
    "nemotron_h-latent": ("nemotron_h", dict(HEADS, layers_block_type=["moe", "mamba", "attention"], num_hidden_layers=3,
                                             ssm_state_size=6, mamba_num_heads=6, mamba_head_dim=8, n_groups=2, conv_kernel=4, chunk_size=8,
                                             expand=2, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                             moe_shared_expert_intermediate_size=16, moe_latent_size=20, routed_scaling_factor=1.5)),
    "falcon_h1": ("falcon_h1", dict(HEADS, mamba_d_ssm=48, **dict(MAMBA, mamba_d_head="auto"), mamba_chunk_size=8, lm_head_multiplier=0.25,
                                    embedding_multiplier=3.0, key_multiplier=0.7, attention_in_multiplier=1.3, attention_out_multiplier=0.6,
                                    ssm_in_multiplier=1.4, ssm_out_multiplier=0.8, ssm_multipliers=[0.5, 1.2, 0.9, 1.5, 0.75],
                                    mlp_multipliers=[0.7, 1.6])),
    "falcon_h1-normed": ("falcon_h1", dict(BASE, mamba_d_ssm=None, **dict(MAMBA, mamba_d_head="auto"), mamba_chunk_size=8,
                                           mamba_rms_norm=True, mamba_norm_before_gate=False, tie_word_embeddings=True)),
    "kimi_linear": ("kimi_linear", dict(LATENT, num_hidden_layers=3, q_lora_rank=None, linear_num_heads=4, linear_head_dim=6,
                                        linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                        mlp_layer_types=["dense", "sparse", "sparse"], num_local_experts=4, num_experts_per_tok=2,
                                        moe_intermediate_size=12, n_shared_experts=1, routed_scaling_factor=1.5)),
    "minimax": ("minimax", dict(HEADS, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                num_local_experts=4, num_experts_per_tok=2, intermediate_size=12, block_size=4,
                                full_attn_alpha_factor=1.4, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.7,
                                linear_attn_beta_factor=0.9, mlp_alpha_factor=1.2, mlp_beta_factor=0.7)),
    "lfm2": ("lfm2", dict(BASE, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, block_multiple_of=4)),
    "lfm2-untied": ("lfm2", dict(BASE, num_hidden_layers=2, full_attn_idxs=[0], conv_L_cache=4, block_auto_adjust_ff_dim=False,
                                 tie_word_embeddings=False)),
    "lfm2_moe": ("lfm2_moe", dict(BASE, num_hidden_layers=3, layer_types=["conv", "conv", "full_attention"], num_dense_layers=1,
                                  num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, routed_scaling_factor=1.5)),
    "qwen3_next": ("qwen3_next", dict(DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                      shared_expert_intermediate_size=16, norm_topk_prob=True)),
    "qwen3_5_text": ("qwen3_5_text", DELTA),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", dict(DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                                  shared_expert_intermediate_size=16)),
}


def is_choice_bias(name):
    """Of experts: it moves which ones are chosen and has no gradient."""
    return "correction" in name or name.endswith("expert_bias")


def randomize(model, generator):
    """Weights large enough that every part shows in loss and gradients; rounded to bf16, in which they are stored."""
    with torch.no_grad():
        tensors = list(model.named_parameters()) + [(name, buffer) for name, buffer in model.named_buffers() if is_choice_bias(name)]
        for name, tensor in tensors:
            normal = torch.randn(tensor.shape, generator=generator)
            if name.endswith("A_log"):
                values = 0.3 * normal + 0.5
            elif name.endswith("dt_bias"):
                values = 0.5 * normal
            elif tensor.dim() == 1 and "bias" not in name and not name.endswith("sinks"):
                values = tensor + 0.2 * normal  # norms, around what the class has (1 or 0)
            elif tensor.dim() == 1:
                values = 0.2 * normal
            elif "conv" in name:
                values = 0.5 * normal
            elif "embed" in name or "wte" in name or "wpe" in name:
                values = 0.5 * normal
            else:
                values = 1.2 * normal / tensor.shape[-1] ** 0.5
            tensor.copy_(values.to(torch.bfloat16))


def is_constant(name):
    """Decays of lightning attention, which follow from layer and head, and constants of xIELU; they are in checkpoints all the same."""
    return name.endswith((".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay", ".act_fn.beta", ".act_fn.eps"))


def published_name(config, name):
    """Names of published checkpoints where save_pretrained() writes others; transformers reads both. Kimi Linear's dense MLPs become
    "block_sparse_moe", and norms behind OLMo hybrid's attention what those in front of its MLPs are called."""
    if config.model_type == "kimi_linear" and re.search(r"block_sparse_moe\.(gate|up|down)_proj\.", name):
        return name.replace("block_sparse_moe", "mlp")
    layer = re.match(r"model\.layers\.(\d+)\.feedforward_layer_norm", name)
    if config.model_type == "olmo_hybrid" and layer and config.layer_types[int(layer[1])] == "full_attention":
        return name.replace("feedforward_layer_norm", "post_attention_layernorm")
    return name


def with_whole_convolutions(config, tensors):
    """save_pretrained() cuts the convolution of OLMo hybrid's q, k and v into thirds, wherever one of them ends."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        names = [name, name.replace("q_conv1d", "k_conv1d"), name.replace("q_conv1d", "v_conv1d")]
        joined = torch.cat([tensors[each] for each in names])
        for each, part in zip(names, joined.split([keys, keys, values])):
            tensors[each] = part.clone()
    return tensors


def saved(model, folder):
    """The tensors of save_pretrained() by name."""
    model.save_pretrained(folder)
    files = sorted(pathlib.Path(folder).glob("*.safetensors"))
    tensors = {published_name(model.config, name): tensor.clone() for file in files for name, tensor in load_file(file).items()}
    return with_whole_convolutions(model.config, tensors) if model.config.model_type == "olmo_hybrid" else tensors


def make(name, out):
    model_type, fields = MODELS[name]
    config = AutoConfig.for_model(model_type, **fields)
    config._attn_implementation = "eager"
    generator = torch.Generator().manual_seed(20260 + sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().train()
    randomize(model, generator)
    tokens = torch.randint(3, config.vocab_size, (SEQUENCES, LENGTH + 1), generator=generator)
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    gradients = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, original in zip(gradients.parameters(), model.parameters()):
            parameter.copy_(original.grad if original.grad is not None else torch.zeros_like(original))
    with tempfile.TemporaryDirectory() as folder:
        of_model = saved(model, pathlib.Path(folder) / "model")
        written = json.loads((pathlib.Path(folder) / "model" / "config.json").read_text())
        of_gradients = saved(gradients, pathlib.Path(folder) / "gradients")
    tensors = {"tokens": tokens.to(torch.int32)}
    for key, value in of_model.items():
        if is_constant(key):
            continue
        assert torch.equal(value, value.to(torch.bfloat16).float()), f"{key} is not stored exactly"
        tensors["weight/" + key] = value.to(torch.bfloat16).contiguous()
        if not is_choice_bias(key):
            tensors["gradient/" + key] = of_gradients[key].float().contiguous()
    metadata = {"config": json.dumps(written), "loss": repr(loss.item()), "transformers": transformers.__version__,
                "torch": torch.__version__, "script": "tests/golden/make_transformers_vectors.py"}
    file = out / f"{name}.safetensors"
    save_file(tensors, file, metadata=metadata)
    norm = sum(float(g.pow(2).sum()) for k, g in tensors.items() if k.startswith("gradient/")) ** 0.5
    return f"{name}: {len(of_model)} tensors, {sum(v.numel() for v in of_model.values())} values, {file.stat().st_size / 1024:.0f} KiB, " \
           f"loss {loss.item():.4f}, gradient norm {norm:.3f}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data" / "transformers")
    arguments.add_argument("names", nargs="*", default=list(MODELS))
    arguments = arguments.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in arguments.names:
        try:
            print(make(name, arguments.out), flush=True)
        except Exception as error:  # each model alone
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
