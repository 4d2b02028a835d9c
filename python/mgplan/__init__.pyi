"""Plans and predicts how to spread the training of a large language model over N GPUs.

    import mgplan
    ranking = mgplan.plan("llama3-8b", 16)
    print(ranking)

Everything is what the command line computes, to the bit. Pins are its options with underscores: tp, cp, ep, etp, pp, vpp, micro_batch,
recompute, global_batch, seq, max_memory, precision, … (``mgplan plan --help`` lists them, and so do the stubs). Bytes are integers, times
are seconds, ranks are global. What cannot be used raises InputError.
"""

# Written by python/write_stub.py.

import os
from typing import Any, Literal, Mapping, Sequence

from ._errors import InputError as InputError, InputWarning as InputWarning, Problem as Problem
from ._results import (
    Answer as Answer,
    Better as Better,
    Check as Check,
    Export as Export,
    Plan as Plan,
    Prediction as Prediction,
    Ranking as Ranking,
)

__version__: str
__all__: list[str]

_Path = str | os.PathLike[str]
_Numbers = int | str | Sequence[int]
_Words = str | Sequence[str]

def plan(
    model: _Path | Mapping[str, Any] | Plan | Any,
    world: _Numbers,
    cluster: _Path | Mapping[str, Any] | None = ...,
    *,
    routing_skew: _Path | Sequence[Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: _Words | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    tp: _Numbers | None = ...,
    cp: _Numbers | None = ...,
    ep: _Numbers | None = ...,
    etp: _Numbers | None = ...,
    pp: _Numbers | None = ...,
    vpp: _Numbers | None = ...,
    micro_batch: _Numbers | None = ...,
    recompute: _Words | None = ...,
    recompute_modules: _Words | None = ...,
    recompute_method: Literal["uniform", "block"] | None = ...,
    recompute_num_layers: int | str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cp_comm_type: _Words | None = ...,
    group_size: int | str | None = ...,
    pipeline_layout: str | None = ...,
    schedule: _Words | None = ...,
    balance_stages: bool | None = ...,
    order: _Words | None = ...,
    cuda_graphs: _Words | None = ...,
    dispatcher: _Words | None = ...,
    search: _Words | None = ...,
    exhaustive: bool | None = ...,
    headroom: str | None = ...,
    objective: Literal["throughput", "memory"] | None = ...,
    threads: int | str | None = ...,
    top: int | str | None = ...,
    explain: int | str | None = ...,
    save_plan: _Path | None = ...,
    pick: int | str | None = ...,
    compare: str | None = ...,
    html: _Path | None = ...,
    tokens: float | str | None = ...,
    gpu_hour_price: float | str | None = ...,
) -> Ranking:
    """Ranks the layouts of a model on `world` GPUs: all legal ones are priced, and those that fit in memory come fastest first.

    model: a preset ("llama3-8b"), a path (config.json or its folder, Megatron-LM flags, mgplan's JSON), a dict of either JSON, or an object
    with to_dict() such as a transformers config; of a Plan, its model. cluster: a preset, also with changed figures ("dgx-h100,gpus_per_node=4" or
    {"preset": "dgx-h100", "gpus_per_node": 4}), a path, or a dict; without it dgx-h100. routing_skew: a word, a path, or counts for each
    expert. pins: numbers, texts or lists restrict the search: tp=8, pp=[1, 2, 4], recompute="none", global_batch=1024 (sequences),
    seq=4096 (tokens), max_memory="70GiB" (or bytes), top=20 (plans).

    Several worlds, or tokens="15T", add how the model scales: answer["scaling"]. Nothing fits: an empty ranking whose ``nearest`` says
    what is missing. Raises InputError for what cannot be used, among it layouts none of which is legal. Other threads run meanwhile, and
    Ctrl-C ends a search within about a second.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas); several are all searched. Gradients keep their
        dtype (default: the command's, else optimizer, full, and hybrid with a replica per NVLink domain).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    tp: tensor parallel sizes (default: all that divide).
    cp: context parallel sizes (default: all that divide).
    ep: expert parallel sizes (default: all that divide).
    etp: expert tensor parallel sizes (default: all that divide).
    pp: pipeline parallel sizes (default: all that divide).
    vpp: model chunks per pipeline rank (default: 1 to 8, and all that make chunks of equal layers).
    micro_batch: sequences per microbatch (default: divisors of global batch / dp up to 16).
    recompute: activation recompute (default: none,selective,full).
    recompute_modules: modules that selective recompute recomputes (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe,
        shared_experts, mhc) (default: core_attn).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p,all_gather,a2a).
    group_size: microbatch group of the interleaved schedule (default: pp).
    pipeline_layout: layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'.
    schedule: pipeline schedules. auto: Megatron-LM's for the layout's pp and vpp. The others are mgplan's own (--engine mgplan),
        tried for the best layouts and the nearest misses; a list without auto ranks them alone (auto, zb-h1, zb-h2, zb-v, v-half,
        v-min, dualpipe-v) (default: auto).
    balance_stages: print what uneven splits of the layers gain over the stages of the best layouts with a pipeline, and try them with
        any --search (the default search tries them).
    order: rank orders, fastest axis first; several are searched (default: tp-cp-ep-dp-pp).
    cuda_graphs: scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none).
    dispatcher: MoE token dispatcher, engine megatron: allgather, alltoall, deepep, hybridep (default: the model's).
    search: what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), tp-
        overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (splits
        balanced by the layers' work), sharding (FSDP and HSDP). plain: nothing; recipe: the first two and the overlaps; wide: all
        (default: all but optimizer, which changes the trained numbers).
    exhaustive: evaluate every layout, without pruning.
    headroom: GPU memory to leave free, such as 4GiB, 5% or 0; ignored where nothing fits otherwise (default: 5%, 0 with --max-
        memory).
    objective: rank by speed or by memory (default: throughput).
    threads: threads of the search; 0: the processors that the process may use, by affinity and control groups (default: 0).
    top: plans to print (default: 5 in a table and 10 in JSON and CSV).
    explain: print every term of plan N, and its advantage over plan N+1.
    save_plan: write the recommended plan, or the picked one, to FILE.
    pick: the plan that --save-plan writes; 1: the fastest (default: the recommended).
    compare: compare a layout with plan 1: its rank and the terms that differ. Sizes such as 'tp2 pp4 mbs1', a plan file, or a file of
        Megatron-LM arguments.
    html: write an interactive HTML report.
    tokens: tokens to train on, such as 15T; adds days, and the effect of one more node, a longer sequence and another batch.
    gpu_hour_price: price per GPU-hour; adds the cost of --tokens.
    """

def sweep(
    model: _Path | Mapping[str, Any] | Plan | Any,
    world: int | str | None = ...,
    cluster: _Path | Mapping[str, Any] | None = ...,
    *,
    over: Mapping[str, Sequence[Any]],
    assume: Literal["llama"] | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing_skew: str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: _Words | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    tp: _Numbers | None = ...,
    cp: _Numbers | None = ...,
    ep: _Numbers | None = ...,
    etp: _Numbers | None = ...,
    pp: _Numbers | None = ...,
    vpp: _Numbers | None = ...,
    micro_batch: _Numbers | None = ...,
    recompute: _Words | None = ...,
    recompute_modules: _Words | None = ...,
    recompute_method: Literal["uniform", "block"] | None = ...,
    recompute_num_layers: int | str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cp_comm_type: _Words | None = ...,
    group_size: int | str | None = ...,
    pipeline_layout: str | None = ...,
    schedule: _Words | None = ...,
    balance_stages: bool | None = ...,
    order: _Words | None = ...,
    cuda_graphs: _Words | None = ...,
    dispatcher: _Words | None = ...,
    search: _Words | None = ...,
    exhaustive: bool | None = ...,
    headroom: str | None = ...,
    objective: Literal["throughput", "memory"] | None = ...,
    threads: int | str | None = ...,
    top: int | str | None = ...,
    explain: int | str | None = ...,
    save_plan: _Path | None = ...,
    pick: int | str | None = ...,
    compare: str | None = ...,
    html: _Path | None = ...,
    tokens: float | str | None = ...,
    gpu_hour_price: float | str | None = ...,
) -> Any:
    """Ranks layouts for every combination of values, {"seq": ["4k", "8k"], "world": [64, 128]}, and gives a pandas.DataFrame with a row
    for each: the values as given, whether a layout fits, and the recommended plan: its layout in words, and its sizes and figures as
    Ranking.to_pandas() has them, but for names that are swept.

    `over` takes every argument and pin of plan(). Needs pandas, which nothing else here does. A combination that cannot be used raises its
    InputError with a note that names it.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing_skew: distribution of tokens over experts: balanced, uniform (both cost no time), zipf, zipf:EXPONENT, worst, or a JSON
        list of counts per expert (or one list per MoE layer). The plan must fit at its 99th percentile, and MoE layers wait for the
        fullest rank (default: uniform).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas); several are all searched. Gradients keep their
        dtype (default: the command's, else optimizer, full, and hybrid with a replica per NVLink domain).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    tp: tensor parallel sizes (default: all that divide).
    cp: context parallel sizes (default: all that divide).
    ep: expert parallel sizes (default: all that divide).
    etp: expert tensor parallel sizes (default: all that divide).
    pp: pipeline parallel sizes (default: all that divide).
    vpp: model chunks per pipeline rank (default: 1 to 8, and all that make chunks of equal layers).
    micro_batch: sequences per microbatch (default: divisors of global batch / dp up to 16).
    recompute: activation recompute (default: none,selective,full).
    recompute_modules: modules that selective recompute recomputes (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe,
        shared_experts, mhc) (default: core_attn).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p,all_gather,a2a).
    group_size: microbatch group of the interleaved schedule (default: pp).
    pipeline_layout: layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'.
    schedule: pipeline schedules. auto: Megatron-LM's for the layout's pp and vpp. The others are mgplan's own (--engine mgplan),
        tried for the best layouts and the nearest misses; a list without auto ranks them alone (auto, zb-h1, zb-h2, zb-v, v-half,
        v-min, dualpipe-v) (default: auto).
    balance_stages: print what uneven splits of the layers gain over the stages of the best layouts with a pipeline, and try them with
        any --search (the default search tries them).
    order: rank orders, fastest axis first; several are searched (default: tp-cp-ep-dp-pp).
    cuda_graphs: scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none).
    dispatcher: MoE token dispatcher, engine megatron: allgather, alltoall, deepep, hybridep (default: the model's).
    search: what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), tp-
        overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (splits
        balanced by the layers' work), sharding (FSDP and HSDP). plain: nothing; recipe: the first two and the overlaps; wide: all
        (default: all but optimizer, which changes the trained numbers).
    exhaustive: evaluate every layout, without pruning.
    headroom: GPU memory to leave free, such as 4GiB, 5% or 0; ignored where nothing fits otherwise (default: 5%, 0 with --max-
        memory).
    objective: rank by speed or by memory (default: throughput).
    threads: threads of the search; 0: the processors that the process may use, by affinity and control groups (default: 0).
    top: plans to print (default: 5 in a table and 10 in JSON and CSV).
    explain: print every term of plan N, and its advantage over plan N+1.
    save_plan: write the recommended plan, or the picked one, to FILE.
    pick: the plan that --save-plan writes; 1: the fastest (default: the recommended).
    compare: compare a layout with plan 1: its rank and the terms that differ. Sizes such as 'tp2 pp4 mbs1', a plan file, or a file of
        Megatron-LM arguments.
    html: write an interactive HTML report.
    tokens: tokens to train on, such as 15T; adds days, and the effect of one more node, a longer sequence and another batch.
    gpu_hour_price: price per GPU-hour; adds the cost of --tokens.
    """

def simulate(
    model: _Path | Mapping[str, Any] | Plan | Any | None = ...,
    world: int | str | None = ...,
    cluster: _Path | Mapping[str, Any] | None = ...,
    *,
    megatron_args: _Path | Sequence[Any] | Mapping[str, Any] | None = ...,
    routing_skew: _Path | Sequence[Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    set: str | None = ...,
    script_args: str | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: str | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    tp: int | str | None = ...,
    cp: int | str | None = ...,
    ep: int | str | None = ...,
    etp: int | str | None = ...,
    pp: int | str | None = ...,
    vpp: int | str | None = ...,
    micro_batch: int | str | None = ...,
    recompute: Literal["none", "selective", "full"] | None = ...,
    recompute_modules: _Words | None = ...,
    recompute_method: Literal["uniform", "block"] | None = ...,
    recompute_num_layers: int | str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cp_comm_type: Literal["p2p", "all_gather", "a2a"] | None = ...,
    group_size: int | str | None = ...,
    schedule: Literal["auto", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"] | None = ...,
    pipeline_layout: str | None = ...,
    first_stage_layers: int | str | None = ...,
    last_stage_layers: int | str | None = ...,
    account_for_embedding: bool | None = ...,
    account_for_loss: bool | None = ...,
    order: str | None = ...,
    cuda_graphs: _Words | None = ...,
    dispatcher: Literal["allgather", "alltoall", "deepep", "hybridep"] | None = ...,
    balance_stages: bool | None = ...,
    straggler: _Words | None = ...,
    jitter: float | str | None = ...,
    seed: int | str | None = ...,
    per_rank: bool | None = ...,
    html: _Path | None = ...,
    device: Literal["cuda", "cpu"] | None = ...,
    kind: str | None = ...,
    timeline: _Path | None = ...,
    memory_snapshot: _Path | None = ...,
) -> Prediction:
    """Predicts memory (bytes) and time (seconds) of one layout.

    Of a model with `world` and pins (tp=4, pp=2, micro_batch=1; what is not pinned is 1 or off); of a plan in place of the model: a
    Plan, a plan file's path or contents, without a world; or of Megatron-LM flags (`megatron_args`, see check). ``fits`` says whether it
    fits; ``predicted`` holds all figures. per_rank=True adds answer["ranks"], memory_snapshot="job.pickle" (which
    torch.cuda._memory_viz and pytorch.org/memory_viz read) answer["memory_snapshot"] with its peaks.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    set: value of a variable of that script; repeatable (default: the script's own value).
    script_args: arguments of that script ($1, $2, …) in one string: --script-args '8 4096' (default: unknown).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas). Gradients keep their dtype (default: the
        command's, else optimizer).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    tp: tensor parallel size (default: 1).
    cp: context parallel size (default: 1).
    ep: expert parallel size (default: 1).
    etp: expert tensor parallel size (default: tp).
    pp: pipeline parallel size (default: 1).
    vpp: model chunks per pipeline rank (default: 1).
    micro_batch: sequences per microbatch (default: 1).
    recompute: activation recompute (default: none).
    recompute_modules: modules that selective recompute recomputes (default: core_attn) (core_attn, mlp, moe_act, layernorm,
        mla_up_proj, moe, shared_experts, mhc).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism; auto: on where tp > 1 (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p).
    group_size: microbatch group of the interleaved schedule (default: pp).
    schedule: pipeline schedule. auto: Megatron-LM's for pp and vpp. The others, with split backward passes, need --engine mgplan
        (default: auto).
    pipeline_layout: layers per stage as in Megatron-LM (default: even).
    first_stage_layers: layers of the first pipeline rank (default: even).
    last_stage_layers: layers of the last pipeline rank (default: even).
    account_for_embedding: count the embedding as a layer of the split.
    account_for_loss: count the loss as a layer of the split.
    order: rank order, fastest axis first (default: tp-cp-ep-dp-pp).
    cuda_graphs: scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none).
    dispatcher: MoE token dispatcher, engine megatron (default: the model's).
    balance_stages: replace the split by the layers per stage that make the slowest stage fastest, where that is faster and fits.
    straggler: global ranks that compute FACTOR times as long; their stage waits for them in every layer (default: none).
    jitter: standard deviation of the time of every pass, in percent; prints mean and p95 of the iteration (default: 0).
    seed: random seed of --jitter (default: 1).
    per_rank: memory and time of every stage (of every rank in JSON and CSV), with the op at the memory peak and a drawing of the
        fullest rank's iteration.
    html: write an interactive HTML report: time, pipeline, memory over the iteration, rank groups.
    device: device whose scratch and context --per-rank and --html count: the cluster's GPUs, or the CPU ranks of run (default: cuda).
    kind: pipeline schedule: none, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe-v, for the time alone (default:
        the layout's).
    timeline: write a trace of the iteration for Perfetto and chrome://tracing.
    memory_snapshot: write the replayed allocator of the fullest rank as a memory snapshot of PyTorch, for pytorch.org/memory_viz.
    """

def check(
    megatron_args: _Path | Sequence[Any] | Mapping[str, Any],
    world: int | str | None = ...,
    cluster: _Path | Mapping[str, Any] | None = ...,
    *,
    routing_skew: _Path | Sequence[Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    set: str | None = ...,
    script_args: str | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: str | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    trace: str | None = ...,
    launch: int | str | None = ...,
    bridge_config: _Path | None = ...,
    recipe: str | None = ...,
    top: int | str | None = ...,
    gate: bool | None = ...,
    save_plan: _Path | None = ...,
    threads: int | str | None = ...,
) -> Check:
    """Judges a Megatron-LM command before it is started: is it legal, does it fit, how fast is it, and what would be better?

    megatron_args: a path (flags, a shell script with an argument array, YAML); the words of a command (sys.argv[1:]); a text of flags; or
    a dict ({"tensor-model-parallel-size": 8, "swiglu": True}). world: GPUs, where the command does not state them. pins: top=0 looks for nothing better, strict=True refuses commands of which
    a flag is not computed. A command that is not legal is answered (``legal`` is False); one that cannot be read raises InputError.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    set: value of a variable of that script; repeatable (default: the script's own value).
    script_args: arguments of that script ($1, $2, …) in one string: --script-args '8 4096' (default: unknown).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas). Gradients keep their dtype (default: the
        command's, else optimizer).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    trace: a launch recorded by mgplan record; it also gives the number of GPUs.
    launch: number of the launch in that record, if several train.
    bridge_config: the YAML of Megatron-Bridge's ConfigContainer (ConfigContainer.to_yaml, run_config.yaml).
    recipe: a recipe of Megatron-Bridge (mgplan recipes); FILE or --bridge-config may hold overrides of it, and words after -- are
        section.field=value.
    top: better layouts to list; 0: no search (default: 3).
    gate: one line for scripts and no search; exit code 0 runs, 2 illegal, 3 does not fit, 6 cannot say.
    save_plan: write the command as a plan, for simulate, run and export.
    threads: threads of the search; 0: the processors that the process may use, by affinity and control groups (default: 0).
    """

def export(
    plan: Plan | _Path | Mapping[str, Any],
    to: Literal["megatron-args", "megatron-yaml", "mgplan"] = ...,
) -> Export:
    """Writes a plan (a Plan, a plan file's path or contents) in the words of the program that is to train it: "megatron-args" (a shell file
    with an array), "megatron-yaml", or "mgplan" (a plan file).
    """

def least(
    model: _Path | Mapping[str, Any] | Plan | Any,
    cluster: _Path | Mapping[str, Any] | None = ...,
    *,
    routing_skew: _Path | Sequence[Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: _Words | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    up_to: int | str | None = ...,
    tp: _Numbers | None = ...,
    cp: _Numbers | None = ...,
    ep: _Numbers | None = ...,
    etp: _Numbers | None = ...,
    pp: _Numbers | None = ...,
    vpp: _Numbers | None = ...,
    micro_batch: _Numbers | None = ...,
    recompute: _Words | None = ...,
    recompute_modules: _Words | None = ...,
    recompute_method: Literal["uniform", "block"] | None = ...,
    recompute_num_layers: int | str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cp_comm_type: _Words | None = ...,
    group_size: int | str | None = ...,
    pipeline_layout: str | None = ...,
    schedule: _Words | None = ...,
    balance_stages: bool | None = ...,
    order: _Words | None = ...,
    cuda_graphs: _Words | None = ...,
    dispatcher: _Words | None = ...,
    search: _Words | None = ...,
    exhaustive: bool | None = ...,
    headroom: str | None = ...,
    objective: Literal["throughput", "memory"] | None = ...,
    threads: int | str | None = ...,
) -> Answer:
    """The least number of GPUs on which a layout of the model fits, and how fast it is there: ``["gpus"]`` (None: nothing fits),
    ``["plan"]``, ``["tokens_per_second_per_gpu"]``; ``["fixes"]`` and ``["without"]`` have the number with one change each.

    pins restrict the search as those of plan() do; up_to=1024 is the largest number that is tried.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas); several are all searched. Gradients keep their
        dtype (default: the command's, else optimizer, full, and hybrid with a replica per NVLink domain).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    up_to: largest number of GPUs to try: powers of two inside a node, then whole nodes (default: 4096).
    tp: tensor parallel sizes (default: all that divide).
    cp: context parallel sizes (default: all that divide).
    ep: expert parallel sizes (default: all that divide).
    etp: expert tensor parallel sizes (default: all that divide).
    pp: pipeline parallel sizes (default: all that divide).
    vpp: model chunks per pipeline rank (default: 1 to 8, and all that make chunks of equal layers).
    micro_batch: sequences per microbatch (default: divisors of global batch / dp up to 16).
    recompute: activation recompute (default: none,selective,full).
    recompute_modules: modules that selective recompute recomputes (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe,
        shared_experts, mhc) (default: core_attn).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p,all_gather,a2a).
    group_size: microbatch group of the interleaved schedule (default: pp).
    pipeline_layout: layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'.
    schedule: pipeline schedules. auto: Megatron-LM's for the layout's pp and vpp. The others are mgplan's own (--engine mgplan),
        tried for the best layouts and the nearest misses; a list without auto ranks them alone (auto, zb-h1, zb-h2, zb-v, v-half,
        v-min, dualpipe-v) (default: auto).
    balance_stages: print what uneven splits of the layers gain over the stages of the best layouts with a pipeline, and try them with
        any --search (the default search tries them).
    order: rank orders, fastest axis first; several are searched (default: tp-cp-ep-dp-pp).
    cuda_graphs: scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none).
    dispatcher: MoE token dispatcher, engine megatron: allgather, alltoall, deepep, hybridep (default: the model's).
    search: what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), tp-
        overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (splits
        balanced by the layers' work), sharding (FSDP and HSDP). plain: nothing; recipe: the first two and the overlaps; wide: all
        (default: all but optimizer, which changes the trained numbers).
    exhaustive: evaluate every layout, without pruning.
    headroom: GPU memory to leave free, such as 4GiB, 5% or 0; ignored where nothing fits otherwise (default: 5%, 0 with --max-
        memory).
    objective: rank by speed or by memory (default: throughput).
    threads: threads of the search; 0: the processors that the process may use, by affinity and control groups (default: 0).
    """

def side_by_side(
    model: _Path | Mapping[str, Any] | Plan | Any,
    on: Sequence[str],
    *,
    routing_skew: _Path | Sequence[Any] | None = ...,
    tokens: float | str | None = ...,
    price: float | str | None = ...,
    assume: Literal["llama"] | None = ...,
    vocab_size: int | str | None = ...,
    global_batch: int | str | None = ...,
    global_batch_tokens: int | str | None = ...,
    seq: int | str | None = ...,
    max_memory: int | str | None = ...,
    routing: Literal["natural", "forced"] | None = ...,
    adverse: str | None = ...,
    lengths: _Path | None = ...,
    lora: str | None = ...,
    precision: str | None = ...,
    software: str | None = ...,
    grad_dtype: Literal["fp32", "bf16", "fp16"] | None = ...,
    no_distributed_optimizer: bool | None = ...,
    sharding: _Words | None = ...,
    optimizer: Literal["adam", "sgd", "lion", "muon", "ademamix"] | None = ...,
    offload: _Words | None = ...,
    overlap: _Words | None = ...,
    no_overlap: _Words | None = ...,
    attention: Literal["flash", "unfused"] | None = ...,
    loss_fusion: Literal["none", "native", "te"] | None = ...,
    strict: bool | None = ...,
    engine: Literal["mgplan", "megatron"] | None = ...,
    tp: _Numbers | None = ...,
    cp: _Numbers | None = ...,
    ep: _Numbers | None = ...,
    etp: _Numbers | None = ...,
    pp: _Numbers | None = ...,
    vpp: _Numbers | None = ...,
    micro_batch: _Numbers | None = ...,
    recompute: _Words | None = ...,
    recompute_modules: _Words | None = ...,
    recompute_method: Literal["uniform", "block"] | None = ...,
    recompute_num_layers: int | str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cp_comm_type: _Words | None = ...,
    group_size: int | str | None = ...,
    pipeline_layout: str | None = ...,
    schedule: _Words | None = ...,
    balance_stages: bool | None = ...,
    order: _Words | None = ...,
    cuda_graphs: _Words | None = ...,
    dispatcher: _Words | None = ...,
    search: _Words | None = ...,
    exhaustive: bool | None = ...,
    headroom: str | None = ...,
    objective: Literal["throughput", "memory"] | None = ...,
    threads: int | str | None = ...,
) -> Answer:
    """The recommended plan of a model on each of several clusters: ``["options"]`` has a dict for each.

    on: texts as --on takes them, "512:dgx-h100", "128:gb300-nvl72,precision=mxfp8"; after the cluster its keys, precision, global_batch,
    seq and price. pins hold for all: tokens="4T" adds days, GPU-hours and, with price, cost.

    Pins:

    tokens: tokens to train on, such as 15T; adds days and GPU-hours.
    price: price per GPU-hour of each --on without a price of its own; adds the cost of --tokens.
    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    vocab_size: vocabulary size before padding (default: the model's, or that of its tokenizer where known).
    global_batch: sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of
        MoE models at least 8 sequences per GPU).
    global_batch_tokens: tokens per step, 4M is 4,194,304; instead of --global-batch.
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    max_memory: memory a rank may use (default: the GPU's).
    routing: expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing)
        (default: the command's, else natural).
    adverse: conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times,
        routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md).
    lengths: document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a
        step waits for the slowest data-parallel rank (default: one document per sequence).
    lora: train low-rank adapters and freeze all other weights: default, or
        rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; with base=nf4 these wait in 4 bits (QLoRA)
        (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every target but latent, 16 bits).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    software: release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08).
    grad_dtype: dtype of gradients and their reduction (default: fp32).
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with
        parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas); several are all searched. Gradients keep their
        dtype (default: the command's, else optimizer, full, and hybrid with a replica per NVLink domain).
    optimizer: optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW)).
    offload: state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5;
        optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: attn_norm,
        qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none).
    overlap: communication to overlap with compute (default: grad-reduce, param-gather, p2p).
    no_overlap: communication not to overlap.
    attention: attention kernels (default: flash).
    loss_fusion: kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te:
        Transformer Engine's, without fp32 logits (default: none).
    strict: refuse a Megatron-LM command with a flag that mgplan does not model or know.
    engine: training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron).
    tp: tensor parallel sizes (default: all that divide).
    cp: context parallel sizes (default: all that divide).
    ep: expert parallel sizes (default: all that divide).
    etp: expert tensor parallel sizes (default: all that divide).
    pp: pipeline parallel sizes (default: all that divide).
    vpp: model chunks per pipeline rank (default: 1 to 8, and all that make chunks of equal layers).
    micro_batch: sequences per microbatch (default: divisors of global batch / dp up to 16).
    recompute: activation recompute (default: none,selective,full).
    recompute_modules: modules that selective recompute recomputes (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe,
        shared_experts, mhc) (default: core_attn).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p,all_gather,a2a).
    group_size: microbatch group of the interleaved schedule (default: pp).
    pipeline_layout: layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'.
    schedule: pipeline schedules. auto: Megatron-LM's for the layout's pp and vpp. The others are mgplan's own (--engine mgplan),
        tried for the best layouts and the nearest misses; a list without auto ranks them alone (auto, zb-h1, zb-h2, zb-v, v-half,
        v-min, dualpipe-v) (default: auto).
    balance_stages: print what uneven splits of the layers gain over the stages of the best layouts with a pipeline, and try them with
        any --search (the default search tries them).
    order: rank orders, fastest axis first; several are searched (default: tp-cp-ep-dp-pp).
    cuda_graphs: scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none).
    dispatcher: MoE token dispatcher, engine megatron: allgather, alltoall, deepep, hybridep (default: the model's).
    search: what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), tp-
        overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (splits
        balanced by the layers' work), sharding (FSDP and HSDP). plain: nothing; recipe: the first two and the overlaps; wide: all
        (default: all but optimizer, which changes the trained numbers).
    exhaustive: evaluate every layout, without pruning.
    headroom: GPU memory to leave free, such as 4GiB, 5% or 0; ignored where nothing fits otherwise (default: 5%, 0 with --max-
        memory).
    objective: rank by speed or by memory (default: throughput).
    threads: threads of the search; 0: the processors that the process may use, by affinity and control groups (default: 0).
    """

def diff(
    a: Plan | _Path | Mapping[str, Any],
    b: Plan | _Path | Mapping[str, Any],
) -> Answer:
    """What two plans (each a Plan, a plan file's path or contents) state differently, and what that does to time and memory.
    """

def schedule(
    pp: int | str | None = ...,
    microbatches: int | str | None = ...,
    *,
    plan: Plan | _Path | Mapping[str, Any] | None = ...,
    vpp: int | str | None = ...,
    group_size: int | str | None = ...,
    kind: Literal["auto", "none", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"] | None = ...,
    forward_only: bool | None = ...,
) -> Answer:
    """The pipeline schedule of every rank: order, warm-up, live microbatches. Of `plan` (a Plan, a plan file's path or contents), or of
    pins: vpp, group_size, kind ("1f1b", "zb-h1", …). forward_only=True leaves the backwards out.

    Pins:

    vpp: model chunks per pipeline rank; more than 1 interleaves (default: 1).
    group_size: microbatch group of the interleaved schedule (default: pp).
    kind: auto: none for pp 1, interleaved for vpp > 1, else 1f1b. zb-h1 and later ones split the backward pass; mgplan runs them,
        Megatron-LM does not (default: auto).
    forward_only: forward passes only, as in evaluation.
    """

def groups(
    world: int | str | None = ...,
    *,
    plan: Plan | _Path | Mapping[str, Any] | None = ...,
    tp: int | str | None = ...,
    cp: int | str | None = ...,
    ep: int | str | None = ...,
    etp: int | str | None = ...,
    dp: int | str | None = ...,
    pp: int | str | None = ...,
    order: str | None = ...,
    distributed_optimizer_instances: int | str | None = ...,
    hybrid_context_parallel: bool | None = ...,
) -> Answer:
    """Which global ranks form each communication group. Of `plan` (a Plan, a plan file's path or contents), or of pins: tp, cp, ep, etp,
    dp, pp, order, distributed_optimizer_instances. hybrid_context_parallel=True adds the groups of dynamic context parallelism.

    Pins:

    tp: tensor parallel size (default: 1).
    cp: context parallel size (default: 1).
    ep: expert parallel size (default: 1).
    etp: tensor parallel size of the experts (default: tp).
    dp: data parallel size (default: what the world leaves); with it --world may be left out.
    pp: pipeline parallel size (default: 1).
    order: order of the axes, fastest varying first; axes of size 1 may be left out (default: tp-cp-ep-dp-pp).
    distributed_optimizer_instances: number of distributed optimizer instances; more than 1 adds the intra_partial and inter_partial
        groups (default: 1).
    hybrid_context_parallel: dynamic context parallelism: add the groups of each power of two of ranks.
    """

def split(
    model: _Path | Mapping[str, Any] | Plan | Any | None = ...,
    *,
    plan: Plan | _Path | Mapping[str, Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    layers: int | str | None = ...,
    mtp_layers: int | str | None = ...,
    pp: int | str | None = ...,
    vpp: int | str | None = ...,
    first_stage_layers: int | str | None = ...,
    last_stage_layers: int | str | None = ...,
    account_for_embedding: bool | None = ...,
    account_for_loss: bool | None = ...,
    pipeline_layout: str | None = ...,
) -> Answer:
    """Which layers each pipeline stage and chunk holds. Of `plan` (a Plan, a plan file's path or contents), or of a model, or layers=N, with
    pins: pp, vpp, first_stage_layers, pipeline_layout, …

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    layers: number of decoder layers, instead of a model.
    mtp_layers: number of multi-token-prediction layers (default: the model's, else 0).
    pp: pipeline parallel size (default: 1).
    vpp: model chunks per pipeline rank (default: the layout string's, else 1).
    first_stage_layers: decoder layers of the first pipeline rank.
    last_stage_layers: decoder layers of the last pipeline rank.
    account_for_embedding: count the embedding as a layer of the first stage.
    account_for_loss: count the loss as a layer of the last stage.
    pipeline_layout: Megatron-LM's layout string, such as 'Et*3|(tt|)*29,m|L': E embedding, t decoder, m MTP, L loss, | between
        stages.
    """

def graphs(
    model: _Path | Mapping[str, Any] | Plan | Any | None = ...,
    *,
    plan: Plan | _Path | Mapping[str, Any] | None = ...,
    pp: int | str | None = ...,
    vpp: int | str | None = ...,
    microbatches: int | str | None = ...,
    group_size: int | str | None = ...,
    layers_per_chunk: _Numbers | None = ...,
    assume: Literal["llama"] | None = ...,
    tp: int | str | None = ...,
    cp: int | str | None = ...,
    ep: int | str | None = ...,
    etp: int | str | None = ...,
    micro_batch: int | str | None = ...,
    seq: int | str | None = ...,
    precision: str | None = ...,
    sequence_parallel: bool | Literal["auto", "on", "off"] | None = ...,
    cuda_graphs: _Words | None = ...,
    policy: Literal["slots", "megatron"] | None = ...,
    capacity_factor: float | str | None = ...,
) -> Answer:
    """CUDA graphs of each pipeline rank and the buffers that they need. Of `plan` (a Plan, a plan file's path or contents), or of a model
    with pins: pp, vpp, microbatches, tp, cuda_graphs, …

    Pins:

    pp: pipeline parallel size (default: 1).
    vpp: model chunks per pipeline rank (default: 1).
    microbatches: microbatches of one iteration.
    group_size: microbatch group of the interleaved schedule (default: pp).
    layers_per_chunk: captured layers of each chunk, or one number for all: counts only.
    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    tp: tensor parallel size (default: 1).
    cp: context parallel size (default: 1).
    ep: expert parallel size (default: 1).
    etp: expert tensor parallel size (default: tp).
    micro_batch: sequences per microbatch (default: 1).
    seq: tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096)).
    precision: precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is
        fp8-current (default: bf16).
    sequence_parallel: sequence parallelism; auto: on where tp > 1 (default: auto).
    cuda_graphs: captured scopes: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: the plan's, else
        layer; with dropless experts attn, moe_router, moe_preprocess, and mlp of dense layers).
    policy: slots: mgplan's own, graphs for each chunk and slot; megatron: Megatron-LM's, graphs for each microbatch (default: that of
        the plan's engine, else slots).
    capacity_factor: capacity of padded experts to compare whole-layer capture with (default: the model's, else 1 and experts/top_k).
    """

def buffers(
    model: _Path | Mapping[str, Any] | Plan | Any | None = ...,
    dp: int | str | None = ...,
    *,
    params: _Path | Sequence[Mapping[str, Any]] | None = ...,
    plan: Plan | _Path | Mapping[str, Any] | None = ...,
    assume: Literal["llama"] | None = ...,
    tp: int | str | None = ...,
    pp: int | str | None = ...,
    vpp: int | str | None = ...,
    ep: int | str | None = ...,
    etp: int | str | None = ...,
    chunk: int | str | None = ...,
    dtype: Literal["bf16", "fp16", "fp32"] | None = ...,
    pp_rank: int | str | None = ...,
    edp: int | str | None = ...,
    bucket_size: int | str | None = ...,
    no_distributed_optimizer: bool | None = ...,
    pad_buckets_for_high_nccl_busbw: bool | None = ...,
    no_grad_reduce_in_fp32: bool | None = ...,
    disable_bucketing: bool | None = ...,
    shards: bool | None = ...,
) -> Answer:
    """Parameter and gradient buffers, their buckets and, with shards=True, every rank's share; positions count elements.

    Of `plan` (a Plan, a plan file's path or contents) with pp_rank and chunk; or of a model; or of `params`: a path, or a list of
    {"name", "shape", "dtype"} in module order. dp: ranks that share the buffers (dp·cp). pins: tp, pp, vpp, ep, etp, edp, pp_rank, chunk,
    dtype, bucket_size (elements, or "none"), no_distributed_optimizer=True, …

    Pins:

    assume: read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it (default:
        refuse such a config).
    tp: with --model: tensor parallel size (default: 1).
    pp: with --model: pipeline parallel size (default: 1).
    vpp: with --model: model chunks per pipeline rank (default: 1).
    ep: with --model: expert parallel size (default: what --edp says, else 1).
    etp: with --model: expert tensor parallel size (default: tp).
    chunk: with --model: which chunk of the rank (default: the first, and no other is cut by size).
    dtype: with --model: storage type of its parameters (default: bf16).
    pp_rank: pipeline rank; ranks after the first do not cut by size (default: 0).
    edp: the same for expert buffers (default: dp, with --model dp·tp / (etp·ep)).
    bucket_size: elements from which on a bucket is closed (default: max(40M, 1M·dp)).
    no_distributed_optimizer: no shards, so no alignment and no padding.
    pad_buckets_for_high_nccl_busbw: bucket ends at multiples of 2^16, too.
    no_grad_reduce_in_fp32: gradients in the parameters' type (bf16 for fp8) in place of fp32.
    disable_bucketing: no cut by size, and one group of all buckets.
    shards: list what each data-parallel rank owns.
    """

def models(
    name: _Path | None = ...,
) -> Any:
    """The model presets with their sizes, a dict each; of a name or a path, that one model as an Answer.
    """

def clusters(
    name: _Path | None = ...,
) -> Any:
    """The cluster presets, a dict each; of a name or a path, that one cluster with the source of every figure as an Answer.
    """
