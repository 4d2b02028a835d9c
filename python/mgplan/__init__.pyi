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
    lengths: _Path | None = ...,
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
    top: int | str | None = ...,
    explain: int | str | None = ...,
    save_plan: _Path | None = ...,
    pick: int | str | None = ...,
    compare: str | None = ...,
    html: _Path | None = ...,
    tokens: float | str | None = ...,
    gpu_hour_price: float | str | None = ...,
    threads: int | str | None = ...,
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

    assume: read a Hugging Face config of an unknown model_type as if it were of this type, which every output says and export
        refuses; without it such a config is refused.
    vocab_size: tokens of the vocabulary before padding; without it the model's, or that of a known tokenizer or one at hand.
    global_batch: sequences per step; without it 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more.
    global_batch_tokens: tokens per step, 4M is 4,194,304; without it --global-batch counts.
    seq: tokens per sequence, 8k is 8,192; without it the preset's, or min(model's maximum, 4096).
    max_memory: memory a rank may use; without it the GPU's.
    routing: who chooses experts: the router, as unevenly as --routing-skew says, or random draws in its place, as Megatron-LM's
        --moe-router-force-load-balancing; without it natural, or as a command says.
    lengths: lengths of the documents that fill each sequence, a JSON list of pairs of tokens and count; attention stays inside a
        document, and a step waits for the busiest data-parallel rank; without it a sequence is one document.
    precision: precision of the matrix products: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8
        is fp8-current; without it bf16.
    software: release of NVIDIA's training container whose rates count, from 25.04 to 26.08; without it 26.08.
    grad_dtype: type of gradients and their reduction; without it fp32.
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: what data-parallel ranks divide: none, optimizer (Megatron-LM's distributed optimizer), optimizer_gradients, full
        (parameters too; both by Megatron-FSDP), or hybrid:N (full inside each of N replicas); without it what a command says, else
        optimizer.
    optimizer: whose state is kept, and whose step is taken; engine mgplan has all but ademamix; without it what a command says, else
        adam (AdamW).
    offload: what waits in the host's memory: optimizer (main parameters and moments) or a share of it, optimizer:0.5; or
        optimizer_states, the same between two updates alone, or a share of it; and inputs of modules between forward and backward:
        attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act; without it what a command says, else nothing.
    overlap: communication to hide; grad-reduce, param-gather and p2p are on without it.
    no_overlap: communication not to hide.
    attention: attention kernels; without it flash.
    loss_fusion: kernels of Megatron-LM's loss: separate ones on fp32 copies of the logits, its own fused ones, or Transformer
        Engine's, which keep no fp32 logits; without it none.
    strict: refuse a Megatron-LM command of which a flag is not computed or not known.
    engine: whose memory and time are predicted, and whether they fit: Megatron-LM's with Transformer Engine, or mgplan's own; without
        it megatron.
    tp: tensor parallel sizes; without it all that divide.
    cp: context parallel sizes; without it all that divide.
    ep: expert parallel sizes; without it all that divide.
    etp: expert tensor parallel sizes; without it all that divide.
    pp: pipeline parallel sizes; without it all that divide.
    vpp: model chunks per pipeline rank; without it 1 to 8, and as many more as make chunks of equal layers.
    micro_batch: sequences per microbatch; without it powers of two up to 16.
    recompute: activation recompute (default: none,selective,full).
    recompute_modules: what selective recomputes (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe, shared_experts, mhc) (default:
        core_attn).
    recompute_method: method of full recompute (default: uniform).
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1).
    sequence_parallel: sequence parallelism (default: auto).
    cp_comm_type: how context-parallel ranks exchange keys and values (default: p2p,all_gather,a2a).
    group_size: microbatch group of the interleaved schedule; without it pp.
    pipeline_layout: layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'.
    schedule: pipeline schedules: auto, as Megatron-LM runs pp and vpp; the others, which it does not have, are tried for the best
        layouts and the nearest misses and imply --engine mgplan; without auto they alone are ranked (auto, zb-h1, zb-h2, zb-v,
        v-half, v-min, dualpipe-v) (default: auto).
    balance_stages: also try, for the best layouts with a pipeline, the layers per stage that make the slowest stage fastest.
    order: orders of the axes in the rank grid, fastest first; each of several is searched (default: tp-cp-ep-dp-pp).
    cuda_graphs: what CUDA graphs capture: attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration (default: none).
    dispatcher: dispatcher of experts' tokens, engine megatron: allgather, alltoall, deepep, hybridep; without it the model's.
    search: what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), tp-
        overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (split by
        the layers' work); plain: nothing, recipe: the first two and the overlaps, wide: all; without it all but optimizer, which
        changes the numbers that are trained.
    exhaustive: price every layout, also those that by a lower bound cannot come into the list.
    headroom: memory of a GPU that plans leave free, such as 4GiB, 5% or 0; where nothing else fits, a plan without it is shown;
        without it 5%, with --max-memory none.
    objective: what to rank by (default: throughput).
    top: plans to print; without it 5 in a table and 10 in JSON and CSV.
    explain: list every term of plan N, and why it stands before plan N+1.
    save_plan: write the best plan, or the picked one, to FILE.
    pick: the plan that --save-plan writes; without it 1.
    compare: put a layout beside the first plan, with its place and the terms that differ: words such as 'tp2 pp4 mbs1', a plan, or a
        file of Megatron-LM arguments; without it none.
    html: write a page of its own: every family by time and memory, a table to sort and filter, why the first wins, and what was
        rejected.
    tokens: tokens to train on, such as 15T: days, and what one more node, a longer sequence or another batch would change; without it
        speed alone.
    gpu_hour_price: price of a GPU for an hour, for the cost of all --tokens; without it no cost.
    threads: threads of the search; 0: all cores (default: 0).
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
    lengths: _Path | None = ...,
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
) -> Prediction:
    """Predicts memory (bytes) and time (seconds) of one layout.

    Of a model with `world` and pins (tp=4, pp=2, micro_batch=1; what is not pinned is 1 or off); of a plan in place of the model: a
    Plan, a plan file's path or contents, without a world; or of Megatron-LM flags (`megatron_args`, see check). ``fits`` says whether it
    fits; ``predicted`` holds all figures. per_rank=True adds answer["ranks"].

    Pins:

    assume: read a Hugging Face config of an unknown model_type as if it were of this type, which every output says and export
        refuses; without it such a config is refused.
    set: a variable of that script, whatever the script assigns to it; may be given several times; without it the script's own value.
    script_args: the script's own arguments, $1 and so on, in one text: --script-args '8 4096', --script-args='--tp 8'; without it
        they are not known.
    vocab_size: tokens of the vocabulary before padding; without it the model's, or that of a known tokenizer or one at hand.
    global_batch: sequences per step; without it 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more.
    global_batch_tokens: tokens per step, 4M is 4,194,304; without it --global-batch counts.
    seq: tokens per sequence, 8k is 8,192; without it the preset's, or min(model's maximum, 4096).
    max_memory: memory a rank may use; without it the GPU's.
    routing: who chooses experts: the router, as unevenly as --routing-skew says, or random draws in its place, as Megatron-LM's
        --moe-router-force-load-balancing; without it natural, or as a command says.
    lengths: lengths of the documents that fill each sequence, a JSON list of pairs of tokens and count; attention stays inside a
        document, and a step waits for the busiest data-parallel rank; without it a sequence is one document.
    precision: precision of the matrix products: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8
        is fp8-current; without it bf16.
    software: release of NVIDIA's training container whose rates count, from 25.04 to 26.08; without it 26.08.
    grad_dtype: type of gradients and their reduction; without it fp32.
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: what data-parallel ranks divide: none, optimizer (Megatron-LM's distributed optimizer), optimizer_gradients, full
        (parameters too; both by Megatron-FSDP), or hybrid:N (full inside each of N replicas); without it what a command says, else
        optimizer.
    optimizer: whose state is kept, and whose step is taken; engine mgplan has all but ademamix; without it what a command says, else
        adam (AdamW).
    offload: what waits in the host's memory: optimizer (main parameters and moments) or a share of it, optimizer:0.5; or
        optimizer_states, the same between two updates alone, or a share of it; and inputs of modules between forward and backward:
        attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act; without it what a command says, else nothing.
    overlap: communication to hide; grad-reduce, param-gather and p2p are on without it.
    no_overlap: communication not to hide.
    attention: attention kernels; without it flash.
    loss_fusion: kernels of Megatron-LM's loss: separate ones on fp32 copies of the logits, its own fused ones, or Transformer
        Engine's, which keep no fp32 logits; without it none.
    strict: refuse a Megatron-LM command of which a flag is not computed or not known.
    engine: whose memory and time are predicted, and whether they fit: Megatron-LM's with Transformer Engine, or mgplan's own; without
        it megatron.
    tp: tensor parallel size; without it 1.
    cp: context parallel size; without it 1.
    ep: expert parallel size; without it 1.
    etp: expert tensor parallel size; without it tp.
    pp: pipeline parallel size; without it 1.
    vpp: model chunks per pipeline rank; without it 1.
    micro_batch: sequences per microbatch; without it 1.
    recompute: activation recompute; without it none.
    recompute_modules: what selective recomputes; without it core_attn (core_attn, mlp, moe_act, layernorm, mla_up_proj, moe,
        shared_experts, mhc).
    recompute_method: method of full recompute; without it uniform.
    recompute_num_layers: uniform: layers per checkpoint; block: layers recomputed per chunk; without it 1.
    sequence_parallel: sequence parallelism; auto and without it: on where tp > 1.
    cp_comm_type: how context-parallel ranks exchange keys and values; without it p2p.
    group_size: microbatch group of the interleaved schedule; without it pp.
    schedule: pipeline schedule of the layout: one with divided backwards, which Megatron-LM does not have and --engine mgplan runs;
        auto and without it as Megatron-LM runs pp and vpp.
    pipeline_layout: layers per stage as in Megatron-LM; without it as even as can be.
    first_stage_layers: layers of the first pipeline rank; without it as even as can be.
    last_stage_layers: layers of the last pipeline rank; without it as even as can be.
    account_for_embedding: count the embedding as a layer of the split.
    account_for_loss: count the loss as a layer of the split.
    order: order of the axes in the rank grid, fastest first; without it tp-cp-ep-dp-pp.
    cuda_graphs: what CUDA graphs capture: attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration; without it none.
    dispatcher: dispatcher of experts' tokens, engine megatron; without it the model's.
    balance_stages: replace the split by the layers per stage that make the slowest stage fastest, where that is faster and fits.
    straggler: global ranks that compute FACTOR times as long, and with them their stage, which meets in tp and cp groups in every
        layer; without it none.
    jitter: spread of the time of every pass in percent (standard deviation); prints mean and p95 of the iteration (default: 0).
    seed: seed of --jitter: the same one draws the same times (default: 1).
    per_rank: memory and time of every stage, with the op at the memory's peak and a drawing of the fullest rank's iteration; in JSON
        and CSV of every rank.
    html: write a page of its own: where the time goes, the pipeline as it runs, memory over the iteration, rank groups.
    device: whose scratch and context --per-rank and --html count: the cluster's GPUs, or CPU ranks as run has them (default: cuda).
    kind: pipeline schedule: none, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe-v; without it as the layout runs,
        whose memory is shown for all.
    timeline: write a trace of the iteration that Perfetto and chrome://tracing open.
    """

def check(
    megatron_args: _Path | Sequence[Any] | Mapping[str, Any],
    world: int | str,
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
    lengths: _Path | None = ...,
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
    top: int | str | None = ...,
    gate: bool | None = ...,
    save_plan: _Path | None = ...,
    threads: int | str | None = ...,
) -> Check:
    """Judges a Megatron-LM command before it is started: is it legal, does it fit, how fast is it, and what would be better?

    megatron_args: a path (flags, a shell script with an argument array, YAML); the words of a command (sys.argv[1:]); a text of flags; or
    a dict ({"tensor-model-parallel-size": 8, "swiglu": True}). pins: top=0 looks for nothing better, strict=True refuses commands of which
    a flag is not computed. A command that is not legal is answered (``legal`` is False); one that cannot be read raises InputError.

    Pins:

    assume: read a Hugging Face config of an unknown model_type as if it were of this type, which every output says and export
        refuses; without it such a config is refused.
    set: a variable of that script, whatever the script assigns to it; may be given several times; without it the script's own value.
    script_args: the script's own arguments, $1 and so on, in one text: --script-args '8 4096', --script-args='--tp 8'; without it
        they are not known.
    vocab_size: tokens of the vocabulary before padding; without it the model's, or that of a known tokenizer or one at hand.
    global_batch: sequences per step; without it 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more.
    global_batch_tokens: tokens per step, 4M is 4,194,304; without it --global-batch counts.
    seq: tokens per sequence, 8k is 8,192; without it the preset's, or min(model's maximum, 4096).
    max_memory: memory a rank may use; without it the GPU's.
    routing: who chooses experts: the router, as unevenly as --routing-skew says, or random draws in its place, as Megatron-LM's
        --moe-router-force-load-balancing; without it natural, or as a command says.
    lengths: lengths of the documents that fill each sequence, a JSON list of pairs of tokens and count; attention stays inside a
        document, and a step waits for the busiest data-parallel rank; without it a sequence is one document.
    precision: precision of the matrix products: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8
        is fp8-current; without it bf16.
    software: release of NVIDIA's training container whose rates count, from 25.04 to 26.08; without it 26.08.
    grad_dtype: type of gradients and their reduction; without it fp32.
    no_distributed_optimizer: every rank keeps the whole optimizer state.
    sharding: what data-parallel ranks divide: none, optimizer (Megatron-LM's distributed optimizer), optimizer_gradients, full
        (parameters too; both by Megatron-FSDP), or hybrid:N (full inside each of N replicas); without it what a command says, else
        optimizer.
    optimizer: whose state is kept, and whose step is taken; engine mgplan has all but ademamix; without it what a command says, else
        adam (AdamW).
    offload: what waits in the host's memory: optimizer (main parameters and moments) or a share of it, optimizer:0.5; or
        optimizer_states, the same between two updates alone, or a share of it; and inputs of modules between forward and backward:
        attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act; without it what a command says, else nothing.
    overlap: communication to hide; grad-reduce, param-gather and p2p are on without it.
    no_overlap: communication not to hide.
    attention: attention kernels; without it flash.
    loss_fusion: kernels of Megatron-LM's loss: separate ones on fp32 copies of the logits, its own fused ones, or Transformer
        Engine's, which keep no fp32 logits; without it none.
    strict: refuse a Megatron-LM command of which a flag is not computed or not known.
    engine: whose memory and time are predicted, and whether they fit: Megatron-LM's with Transformer Engine, or mgplan's own; without
        it megatron.
    trace: a launch that mgplan record wrote down; its words tell the world, too.
    launch: the launch of that record that is judged, where several train.
    bridge_config: the YAML of Megatron-Bridge's ConfigContainer (ConfigContainer.to_yaml, run_config.yaml).
    top: better layouts to list; 0 does not look for them (default: 3).
    gate: one line for scripts and no search; exit code 0 runs, 2 illegal, 3 does not fit, 6 cannot say.
    save_plan: write the command as a plan, for simulate, run and export.
    threads: threads of the search; 0: all cores (default: 0).
    """

def export(
    plan: Plan | _Path | Mapping[str, Any],
    to: Literal["megatron-args", "megatron-yaml", "mgplan"] = ...,
) -> Export:
    """Writes a plan (a Plan, a plan file's path or contents) in the words of the program that is to train it: "megatron-args" (a shell file
    with an array), "megatron-yaml", or "mgplan" (a plan file).
    """

def schedule(
    pp: int | str,
    microbatches: int | str,
    *,
    vpp: int | str | None = ...,
    group_size: int | str | None = ...,
    kind: Literal["auto", "none", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"] | None = ...,
    forward_only: bool | None = ...,
) -> Answer:
    """The pipeline schedule of every rank: order, warm-up, live microbatches. pins: vpp, group_size, kind ("1f1b", "zb-h1", …),
    forward_only=True.

    Pins:

    vpp: model chunks per pipeline rank; more than 1 interleaves (default: 1).
    group_size: microbatch group of the interleaved schedule (default: pp).
    kind: auto: none for pp 1, interleaved for vpp > 1, else 1f1b; from zb-h1 on backwards are split: engine mgplan simulates and
        trains these, Megatron-LM has none (default: auto).
    forward_only: forwards alone, as in evaluation.
    """

def groups(
    world: int | str | None = ...,
    *,
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
    """Which global ranks form each communication group. pins: tp, cp, ep, etp, dp, pp, order, distributed_optimizer_instances,
    hybrid_context_parallel.

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
    hybrid_context_parallel: dynamic context parallelism: adds the groups that documents run over, of each power of two of ranks.
    """

def buffers(
    model: _Path | Mapping[str, Any] | Plan | Any | None = ...,
    dp: int | str | None = ...,
    *,
    params: _Path | Sequence[Mapping[str, Any]] | None = ...,
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

    Of a model, or of `params`: a path, or a list of {"name", "shape", "dtype"} in module order. dp: ranks that share the buffers (dp·cp).
    pins: tp, pp, vpp, ep, etp, edp, pp_rank, chunk, dtype, bucket_size (elements, or "none"), no_distributed_optimizer=True, …

    Pins:

    assume: read a Hugging Face config of an unknown model_type as if it were of this type, which every output says and export
        refuses; without it such a config is refused.
    tp: with --model: tensor parallel size; without it 1.
    pp: with --model: pipeline parallel size; without it 1.
    vpp: with --model: model chunks per pipeline rank; without it 1.
    ep: with --model: expert parallel size; without it what --edp says, else 1.
    etp: with --model: expert tensor parallel size; without it tp.
    chunk: with --model: which chunk of the rank; without it the first, and no other is cut by size.
    dtype: with --model: storage type of its parameters (default: bf16).
    pp_rank: pipeline rank; ranks behind the first do not cut by size (default: 0).
    edp: the same for expert buffers; without it dp, with --model dp·tp / (etp·ep).
    bucket_size: elements from which on a bucket is closed; without it max(40M, 1M·dp).
    no_distributed_optimizer: no shards, so no alignment and no padding.
    pad_buckets_for_high_nccl_busbw: bucket ends at multiples of 2^16, too.
    no_grad_reduce_in_fp32: gradients in the parameters' type (bf16 for fp8) in place of fp32.
    disable_bucketing: no cut by size, and one group of all buckets.
    shards: list what each data-parallel rank owns.
    """
