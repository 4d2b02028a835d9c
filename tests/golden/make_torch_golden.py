#!/usr/bin/python3
"""Writes data/torch_*.json: five training steps of small models in plain PyTorch, as truth for the layers and the optimizer.

    apt-get install python3-torch
    /usr/bin/python3 tests/golden/make_torch_golden.py [--out FOLDER] [NAME ...]

Nothing here comes from mgplan but two conventions, which any implementation can follow: the initial weights are a hash
of parameter name and index (docstring of `initial_values`), and the packed q/k/v projection and gated first MLP product
have Megatron-core's row order (docstring of `attention`, `mlp`). Losses are means over all tokens; gradient norms are
those before clipping; checksums are taken over each parameter after the last step.
"""
import argparse
import datetime
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

SEED = 1243  # of those tried the one whose routing is farthest from a tie
DEVIATION = 0.02
STEPS = 5
# Epsilon is larger than usual: gradients that are nothing but rounding (keys' biases) would else move by a whole learning
# rate into a random direction, and fp32 and fp64 drift apart by 7e-6 instead of 3e-7.
RUN = {"global_batch": 4, "sequence": 32, "learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.1,
       "clip_norm": 1.0, "seed": SEED, "deviation": DEVIATION, "norm_epsilon": 1e-5, "rotary_base": 10000.0}

SHAPE = {"layers": 3, "hidden": 64, "ffn": 160, "heads": 4, "kv_heads": 4, "head_dim": 16, "vocab": 211, "max_positions": 32}
LLAMA = dict(SHAPE, kv_heads=2, kind="llama")
MODELS = {
    # Tied embeddings, learned positions, LayerNorm, GELU (tanh form), biases everywhere.
    "gpt": dict(SHAPE, kind="gpt"),
    # Untied, RoPE, RMSNorm, SwiGLU, grouped queries, no biases.
    "llama": LLAMA,
    # Every layer a mixture: softmax over the two chosen logits.
    "moe_softmax": dict(LLAMA, experts=8, top_k=2, expert_ffn=48, shared_ffn=0, score="softmax", moe_layers=[True, True, True]),
    # Sigmoid scores normalised over the two chosen, a shared expert, the first layer dense.
    "moe_sigmoid": dict(LLAMA, experts=8, top_k=2, expert_ffn=48, shared_ffn=32, score="sigmoid", moe_layers=[False, True, True]),
}


def mixed(x):
    """The finalizer of SplitMix64, on arrays of uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_of(text):
    """FNV-1a of the bytes, 64 bits, with 1469598103934665603 as its start."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return np.uint64(value)


def initial_values(name, shape, deviation):
    """Element i (row-major) is normal(key, i) · deviation by Box and Muller, with key = mixed(seed ^ hash_of(name)),
    u = (top 53 bits of mixed(key ^ mixed(2i)) + 1/2) / 2^53, v = top 53 bits of mixed(key ^ mixed(2i + 1)) / 2^53."""
    count = math.prod(shape)
    with np.errstate(over="ignore"):
        key = mixed(np.array([np.uint64(SEED) ^ hash_of(name)], dtype=np.uint64))[0]
        index = np.arange(count, dtype=np.uint64)
        first = mixed(key ^ mixed(np.uint64(2) * index)) >> np.uint64(11)
        second = mixed(key ^ mixed(np.uint64(2) * index + np.uint64(1))) >> np.uint64(11)
    # libm's log and cos, not numpy's: the last bit shall be that of C.
    values = [math.sqrt(-2 * math.log((int(a) + 0.5) * 2.0**-53)) * math.cos(2 * math.pi * (int(b) * 2.0**-53))
              for a, b in zip(first, second)]
    return deviation * np.array(values).reshape(shape)


def make_parameters(model, dtype):
    """All parameters by Megatron-core's names; experts carry their number in the whole layer."""
    parameters = {}

    def add(name, shape, value=None, deviation=DEVIATION):
        values = np.full(shape, value) if value is not None else initial_values(name, shape, deviation)
        parameters[name] = torch.tensor(values).to(dtype).requires_grad_()

    gpt = model["kind"] == "gpt"
    hidden, heads, kv, dim = model["hidden"], model["heads"], model["kv_heads"], model["head_dim"]
    out = DEVIATION / math.sqrt(2.0 * model["layers"])  # of projections back to the residual stream

    def add_norm(scale, shift):
        add(scale, (hidden,), 1.0)
        if gpt:
            add(shift, (hidden,), 0.0)

    def add_mlp(prefix, ffn, number="", bias=False):
        first = ffn if gpt else 2 * ffn
        add(f"{prefix}linear_fc1.weight{number}", (first, hidden))
        add(f"{prefix}linear_fc2.weight{number}", (hidden, ffn), deviation=out)
        if bias:
            add(f"{prefix}linear_fc1.bias{number}", (first,), 0.0)
            add(f"{prefix}linear_fc2.bias{number}", (hidden,), 0.0)

    add("embedding.word_embeddings.weight", (model["vocab"], hidden))
    if gpt:
        add("embedding.position_embeddings.weight", (model["max_positions"], hidden))
    for layer in range(model["layers"]):
        prefix = f"decoder.layers.{layer}."
        attention_prefix = prefix + "self_attention."
        add(attention_prefix + "linear_proj.weight", (hidden, heads * dim), deviation=out)
        add_norm(attention_prefix + "linear_qkv.layer_norm_weight", attention_prefix + "linear_qkv.layer_norm_bias")
        add(attention_prefix + "linear_qkv.weight", ((heads + 2 * kv) * dim, hidden))
        if gpt:
            add(attention_prefix + "linear_proj.bias", (hidden,), 0.0)
            add(attention_prefix + "linear_qkv.bias", ((heads + 2 * kv) * dim,), 0.0)
        if "experts" in model and model["moe_layers"][layer]:
            add_norm(prefix + "pre_mlp_layernorm.weight", prefix + "pre_mlp_layernorm.bias")
            add(prefix + "mlp.router.weight", (model["experts"], hidden))
            for expert in range(model["experts"]):
                add_mlp(prefix + "mlp.experts.", model["expert_ffn"], expert)
            if model["shared_ffn"]:
                add_mlp(prefix + "mlp.shared_experts.", model["shared_ffn"])
        else:
            add_norm(prefix + "mlp.linear_fc1.layer_norm_weight", prefix + "mlp.linear_fc1.layer_norm_bias")
            add_mlp(prefix + "mlp.", model["ffn"], bias=gpt)
    add_norm("decoder.final_layernorm.weight", "decoder.final_layernorm.bias")
    if not gpt:
        add("output_layer.weight", (model["vocab"], hidden))
    return parameters


def tokens(model):
    """(batch, sequence + 1) ids, the same in every step: sequence i is a linear congruential stream whose state starts at
    7919·i + 17."""
    rows = []
    for i in range(RUN["global_batch"]):
        state, row = i * 7919 + 17, []
        for _ in range(RUN["sequence"] + 1):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            row.append((state >> 33) % model["vocab"])
        rows.append(row)
    return torch.tensor(rows)


def rotate(x):
    """Values i and i + width/2 of each head turn by position · base^(-2i / width). x (batch, sequence, heads, width)."""
    width = x.shape[-1]
    frequencies = RUN["rotary_base"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequencies)
    c, s = angles.cos().to(x.dtype)[None, :, None], angles.sin().to(x.dtype)[None, :, None]
    a, b = x[..., : width // 2], x[..., width // 2:]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


class Forward:
    def __init__(self, model, parameters):
        self.model, self.p, self.margins = model, parameters, []

    def norm(self, x, scale, shift):
        if self.model["kind"] == "gpt":
            return F.layer_norm(x, x.shape[-1:], self.p[scale], self.p[shift], RUN["norm_epsilon"])
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + RUN["norm_epsilon"]) * self.p[scale]

    def attention(self, x, prefix):
        """Rows of the packed projection: for each kv head its query heads, then its key, then its value."""
        model, p = self.model, self.p
        batch, sequence, _ = x.shape
        kv, dim, group = model["kv_heads"], model["head_dim"], model["heads"] // model["kv_heads"]
        packed = F.linear(x, p[prefix + "linear_qkv.weight"], p.get(prefix + "linear_qkv.bias"))
        packed = packed.view(batch, sequence, kv, group + 2, dim)
        q = packed[:, :, :, :group].reshape(batch, sequence, kv * group, dim)
        k, v = packed[:, :, :, group], packed[:, :, :, group + 1]
        if model["kind"] != "gpt":
            q, k = rotate(q), rotate(k)
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        scores = torch.einsum("bqnd,bknd->bnqk", q, k) / math.sqrt(dim)
        scores = scores + torch.triu(torch.full((sequence, sequence), -math.inf, dtype=x.dtype), 1)
        output = torch.einsum("bnqk,bknd->bqnd", scores.softmax(-1), v).reshape(batch, sequence, kv * group * dim)
        return F.linear(output, p[prefix + "linear_proj.weight"], p.get(prefix + "linear_proj.bias"))

    def mlp(self, x, prefix, number=""):
        """Gated: the first half of the first product's rows is the gate, the second the value."""
        p = self.p
        before = F.linear(x, p[f"{prefix}linear_fc1.weight{number}"], p.get(f"{prefix}linear_fc1.bias{number}"))
        if self.model["kind"] == "gpt":
            after = F.gelu(before, approximate="tanh")
        else:
            gate, value = before.chunk(2, -1)
            after = F.silu(gate) * value
        return F.linear(after, p[f"{prefix}linear_fc2.weight{number}"], p.get(f"{prefix}linear_fc2.bias{number}"))

    def mixture(self, x, prefix):
        """Dropless, without auxiliary loss."""
        model = self.model
        rows = x.reshape(-1, x.shape[-1])
        logits = F.linear(rows, self.p[prefix + "router.weight"])
        best = logits.detach().sort(-1, descending=True).values
        self.margins.append(float((best[:, model["top_k"] - 1] - best[:, model["top_k"]]).min()))
        if model["score"] == "softmax":
            chosen, experts = logits.topk(model["top_k"], -1)
            weights = chosen.softmax(-1)
        else:
            chosen, experts = logits.sigmoid().topk(model["top_k"], -1)
            weights = chosen / chosen.sum(-1, keepdim=True)
        result = torch.zeros_like(rows)
        for expert in range(model["experts"]):
            row, slot = (experts == expert).nonzero(as_tuple=True)
            if len(row):
                result = result.index_add(0, row, self.mlp(rows[row], prefix + "experts.", expert) * weights[row, slot, None])
        if model["shared_ffn"]:
            result = result + self.mlp(rows, prefix + "shared_experts.")
        return result.view(x.shape)

    def loss(self, ids, targets):
        model, p = self.model, self.p
        x = p["embedding.word_embeddings.weight"][ids]
        if model["kind"] == "gpt":
            x = x + p["embedding.position_embeddings.weight"][: ids.shape[1]]
        for layer in range(model["layers"]):
            prefix = f"decoder.layers.{layer}."
            attention = prefix + "self_attention."
            normed = self.norm(x, attention + "linear_qkv.layer_norm_weight", attention + "linear_qkv.layer_norm_bias")
            x = x + self.attention(normed, attention)
            if "experts" in model and model["moe_layers"][layer]:
                x = x + self.mixture(self.norm(x, prefix + "pre_mlp_layernorm.weight", prefix + "pre_mlp_layernorm.bias"), prefix + "mlp.")
            else:
                fc1 = prefix + "mlp.linear_fc1.layer_norm_"
                x = x + self.mlp(self.norm(x, fc1 + "weight", fc1 + "bias"), prefix + "mlp.")
        x = self.norm(x, "decoder.final_layernorm.weight", "decoder.final_layernorm.bias")
        logits = F.linear(x, p.get("output_layer.weight", p["embedding.word_embeddings.weight"]))
        return F.cross_entropy(logits.reshape(-1, model["vocab"]), targets.reshape(-1))


def train(model, dtype):
    parameters = make_parameters(model, dtype)
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": RUN["weight_decay"]},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RUN["learning_rate"], betas=(RUN["beta1"], RUN["beta2"]), eps=RUN["epsilon"], foreach=False)
    losses, norms, margins = [], [], []
    for _ in range(STEPS):
        ids = tokens(model)
        forward = Forward(model, parameters)
        loss = forward.loss(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), RUN["clip_norm"])))
        optimizer.step()
        losses.append(float(loss))
        margins += forward.margins
    result = {"losses": losses, "gradient_norms": norms,
              "parameters": {name: {"sum": float(p.detach().double().sum()), "sum_of_squares": float(p.detach().double().pow(2).sum())}
                             for name, p in parameters.items()}}
    if margins:
        result["smallest_routing_margin"] = min(margins)
    return result


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data")
    arguments.add_argument("names", nargs="*", default=list(MODELS))
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.names:
        golden = {"source": f"PyTorch {torch.__version__} (Debian python3-torch), one CPU thread; tests/golden/make_torch_golden.py",
                  "date": datetime.date.today().isoformat(), "run": RUN, "model": MODELS[name],
                  "fp32": train(MODELS[name], torch.float32), "fp64": train(MODELS[name], torch.float64)}
        (arguments.out / f"torch_{name}.json").write_text(json.dumps(golden, indent=1) + "\n")
        apart = max(abs(a / b - 1) for key in ("losses", "gradient_norms") for a, b in zip(golden["fp32"][key], golden["fp64"][key]))
        print(f"{name}: losses {golden['fp64']['losses']}, norms {golden['fp64']['gradient_norms']}; fp32 and fp64 differ by {apart:.1e}; "
              f"smallest routing margin {golden['fp64'].get('smallest_routing_margin')}")


if __name__ == "__main__":
    main()
