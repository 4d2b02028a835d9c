"""Megatron-LM's own estimate of a job's memory, reproduced number for number: a rival that the score stands beside.

Source: megatron/training/theoretical_memory_usage.py of Megatron-LM d98e8a64. It divides layers over stages as real numbers, shards
over dp without cp, and ignores biases, position embeddings, QK-norm and the projections of multi-token prediction; its activations know
neither grouped queries nor gating, mixtures, context parallelism or full recompute. megatron_estimate_test.py holds it against answers
recorded from Megatron-LM.
"""

import math
import re
from dataclasses import dataclass

SIZES = ("num_layers", "hidden_size", "num_attention_heads", "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
         "virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size")


@dataclass
class Held:
    """Parameters of one module: divided over tp; whole on every tp rank; divided over etp·ep; of the last those that a token meets."""

    sharded: float = 0.0
    replicated: float = 0.0
    expert: float = 0.0
    active_expert: float = 0.0

    def __add__(self, other):
        return Held(self.sharded + other.sharded, self.replicated + other.replicated, self.expert + other.expert,
                    self.active_expert + other.active_expert)

    def __rmul__(self, times):
        return Held(times * self.sharded, times * self.replicated, times * self.expert, times * self.active_expert)

    def total(self):
        return self.sharded + self.replicated + self.expert

    def active(self):
        return self.sharded + self.replicated + self.active_expert


def check(a):
    """Raises ValueError for what Megatron-LM asserts, and for sizes below 1."""
    for name in SIZES:
        if a[name] is not None and a[name] < 1:
            raise ValueError(f"{name} = {a[name]} is out of range; give a whole number from 1")
    if a["multi_latent_attention"] and a["group_query_attention"]:
        raise ValueError("multi-latent attention has no query groups; switch group_query_attention off")


def moe_layers(a):
    """One truth value a layer: whether it is a mixture."""
    if not a["num_experts"]:
        return [False] * a["num_layers"]
    frequency = a["moe_layer_freq"]
    layers = [bool(one) for one in frequency] if isinstance(frequency, list) else [i % frequency == 0 for i in range(a["num_layers"])]
    if len(layers) != a["num_layers"]:
        raise ValueError(f"the list of mixture layers has {len(layers)} entries for {a['num_layers']} layers; give one entry per layer")
    return layers


def attention_parameters(a, norm):
    hidden, heads = a["hidden_size"], a["num_attention_heads"]
    if a["multi_latent_attention"]:
        width = heads * (a["qk_head_dim"] + a["qk_pos_emb_head_dim"])
        query = hidden * width if a["q_lora_rank"] is None else a["q_lora_rank"] * (hidden + width + norm)
        return (query + a["kv_lora_rank"] * (hidden + heads * (a["qk_head_dim"] + a["v_head_dim"]) + norm) +
                hidden * a["qk_pos_emb_head_dim"] + heads * a["v_head_dim"] * hidden)
    groups = (a["num_query_groups"] or heads) if a["group_query_attention"] else heads
    return 2 * hidden * hidden * ((1 + groups / heads) * (a["kv_channels"] * heads / hidden))


def with_embedding_and_schedule(a, layers, microbatches):
    """All layers' activations, with the embedding's input and dropout, for the microbatches in flight."""
    pp, tokens = a["pipeline_model_parallel_size"], a["seq_length"] * a["micro_batch_size"]
    memory = layers + 8 * tokens * pp + tokens * a["hidden_size"] * pp
    if a["virtual_pipeline_model_parallel_size"] is not None:
        return memory * (1 + (pp - 1) / (pp * a["virtual_pipeline_model_parallel_size"]))
    if pp > 1 and microbatches is not None:
        return memory * min(1.0, microbatches / pp)
    return memory


def activations_with_sp(a, microbatches):
    """Table 2 of arXiv 2205.05198, with the MLP's width in place of 4h: sequence parallelism and selective recompute."""
    tokens, hidden = a["seq_length"] * a["micro_batch_size"], a["hidden_size"]
    layer = tokens * hidden * (18 + 4 * (a["ffn_hidden_size"] / hidden))
    memory = with_embedding_and_schedule(a, layer * a["num_layers"], microbatches)
    if a["pipeline_model_parallel_size"] == 1:
        memory += tokens * hidden * 4 * (1 + a["padded_vocab_size"] / hidden)
    return memory / a["tensor_model_parallel_size"]


def activations_without_sp(a, microbatches):
    tokens, hidden, tp = a["seq_length"] * a["micro_batch_size"], a["hidden_size"], a["tensor_model_parallel_size"]
    layer = tokens * hidden * (10 + 24 / tp)
    memory = with_embedding_and_schedule(a, layer * a["num_layers"], microbatches)
    if a["pipeline_model_parallel_size"] == 1:  # 16-bit logits and the final norm's output
        memory += (tokens * a["padded_vocab_size"] / tp + tokens * hidden) * 2
    return memory * 1.05


def estimate(a, microbatches=None):
    """Bytes and parameter counts for arguments under Megatron-LM's names, all of them given."""
    check(a)
    mixtures = moe_layers(a)
    hidden, norm, gated = a["hidden_size"], 1 if a["normalization"] == "RMSNorm" else 2, 1.5 if a["swiglu"] else 1
    tp, pp = a["tensor_model_parallel_size"], a["pipeline_model_parallel_size"]
    attention, norms = attention_parameters(a, norm), 2 * hidden * norm

    shared = a["moe_shared_expert_intermediate_size"] or 0
    dense = Held(attention + 2 * hidden * a["ffn_hidden_size"] * gated, norms)
    moe = Held(attention + 2 * hidden * shared * gated, norms)
    experts, latent = a["num_experts"] or 0, a["moe_latent_size"]
    if experts:
        # A latent mixture projects tokens down before its experts and up behind them.
        expert = 2 * (latent or hidden) * a["moe_ffn_hidden_size"] * gated
        moe.expert, moe.active_expert = expert * experts, expert * a["moe_router_topk"]
        moe.replicated += hidden * experts + (experts if a["add_bias_linear"] else 0)
        moe.replicated += 2 * hidden * latent if latent else 0
        moe.replicated += hidden if a["moe_shared_expert_gate"] and shared > 0 else 0
    block = mixtures.count(False) * dense + mixtures.count(True) * moe + Held(replicated=norm * hidden)
    mtp = (a["mtp_num_layers"] or 0) * (moe if mixtures[-1] else dense)
    embedding = hidden * a["padded_vocab_size"]
    untied = a["untie_embeddings_and_output_weights"]
    embeddings = 2 * embedding if untied else embedding

    # Most loaded: one stage's part of the layers, all MTP layers, the embedding, and with one stage the output layer.
    sharded = (block.sharded / pp + mtp.sharded + embedding) / tp + (embedding / tp if untied and pp == 1 else 0)
    replicated = block.replicated / pp + mtp.replicated
    ranks_of_experts = a["expert_tensor_parallel_size"] * a["expert_model_parallel_size"]
    expert = (block.expert / pp + mtp.expert) / ranks_of_experts

    def bytes_per_parameter(dp):
        return 6 + 12 / dp if a["use_distributed_optimizer"] else 18

    state = (sharded + replicated) * bytes_per_parameter(a["data_parallel_size"])
    if expert > 0:
        state += expert * bytes_per_parameter(max(1, a["world_size"] // (ranks_of_experts * pp)))
    with_sp, without_sp = activations_with_sp(a, microbatches), activations_without_sp(a, microbatches)
    taken = with_sp if a["sequence_parallel"] and a["recompute_granularity"] == "selective" else without_sp
    return {"weight_and_optimizer_bytes": state, "activation_bytes_sp": with_sp, "activation_bytes_without_sp": without_sp,
            "activation_bytes": taken, "bytes": state + taken, "num_total_parameters": block.total() + mtp.total() + embeddings,
            "num_active_parameters": block.active() + mtp.total() + embeddings,
            "num_parameters_on_most_loaded_model_shard": sharded + replicated + expert}


def layer_list(text):
    """--moe-layer-freq: a number, or a Python list of 0 and 1 put together with + and *."""
    text = str(text)
    if not re.fullmatch(r"[\[\]()*+,\d\s]+", text):
        raise ValueError(f"moe-layer-freq = {text!r} is neither a number nor a list")
    return eval(text, {"__builtins__": {}})  # digits, brackets and operators alone


def arguments_of_run(flags, world):
    """All arguments of the estimate from the flags of a command line, with the defaults of Megatron-LM's parser (training/arguments.py),
    and the number of microbatches."""

    def get(name, default=None):
        return flags.get(name, default)

    hidden, heads = get("hidden-size"), get("num-attention-heads")
    tp, pp, cp = (get(f"{axis}-size", 1) for axis in ("tensor-model-parallel", "pipeline-model-parallel", "context-parallel"))
    # For gated MLPs two thirds of the usual width, in whole 64s.
    ffn = get("ffn-hidden-size", int(4 * hidden * 2 / 3 / 64) * 64 if get("swiglu") else 4 * hidden)
    divisible = get("make-vocab-size-divisible-by", 128) * tp
    vpp = get("num-virtual-stages-per-pipeline-rank")
    if vpp is None and get("num-layers-per-virtual-pipeline-stage"):
        vpp = get("num-layers") // pp // get("num-layers-per-virtual-pipeline-stage")
    dp = world // (tp * pp * cp)
    a = {
        "num_layers": get("num-layers"), "hidden_size": hidden, "ffn_hidden_size": ffn, "num_attention_heads": heads,
        "kv_channels": get("kv-channels", hidden // heads), "group_query_attention": get("group-query-attention", False),
        "num_query_groups": get("num-query-groups", 1), "swiglu": get("swiglu", False), "normalization": get("normalization", "LayerNorm"),
        "add_bias_linear": not get("disable-bias-linear", False),
        "untie_embeddings_and_output_weights": get("untie-embeddings-and-output-weights", False),
        "padded_vocab_size": math.ceil(get("vocab-size") / divisible) * divisible, "num_experts": get("num-experts"),
        "moe_router_topk": get("moe-router-topk", 2), "moe_ffn_hidden_size": get("moe-ffn-hidden-size", ffn),
        "moe_shared_expert_intermediate_size": get("moe-shared-expert-intermediate-size"),
        "moe_shared_expert_gate": get("moe-shared-expert-gate", False), "moe_latent_size": get("moe-latent-size"),
        "moe_layer_freq": layer_list(get("moe-layer-freq", 1)), "mtp_num_layers": get("mtp-num-layers"),
        "multi_latent_attention": get("multi-latent-attention", False), "q_lora_rank": get("q-lora-rank"), "kv_lora_rank": get("kv-lora-rank", 32),
        "qk_head_dim": get("qk-head-dim", 128), "qk_pos_emb_head_dim": get("qk-pos-emb-head-dim", 64), "v_head_dim": get("v-head-dim", 128),
        "seq_length": get("seq-length"), "micro_batch_size": get("micro-batch-size", 1), "world_size": world,
        "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "virtual_pipeline_model_parallel_size": vpp,
        "expert_model_parallel_size": get("expert-model-parallel-size", 1), "expert_tensor_parallel_size": get("expert-tensor-parallel-size", tp),
        "data_parallel_size": dp, "use_distributed_optimizer": get("use-distributed-optimizer", False),
        "sequence_parallel": get("sequence-parallel", False), "recompute_granularity": get("recompute-granularity"),
    }
    return a, get("global-batch-size") // (a["micro_batch_size"] * dp)


def run_bytes(record):
    """What Megatron-LM would print for a record of data/, in bytes; None where it refuses to."""
    try:
        return estimate(*arguments_of_run(record["arguments"], record["world"]))["bytes"]
    except ValueError:
        return None
