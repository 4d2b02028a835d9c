#!/usr/bin/env python3
"""Products and Llama-shaped layers in PyTorch on the card: the yardstick for tests/gpu/bench.cpp.

    torch_reference.py products | eager | cudnn | compiled | compiled_cudnn | graphs FILE

eager: attention as PyTorch chooses it; cudnn: by cuDNN; compiled: torch.compile; compiled_cudnn: both; graphs: torch.compile into CUDA graphs, attention by cuDNN.
FILE gets one JSON object, anew after each product, so that what was measured is there when the program is stopped. Exits 77 where there is
no PyTorch or no GPU.
The same sizes, the same work: bf16 parameters with fp32 main copies stepped by fused AdamW, causal attention through
scaled_dot_product_attention, forward, backward and optimizer in one timed step."""

import contextlib
import json
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"torch_reference: {missing}")
    sys.exit(77)

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 4, 4096, 14336, 32, 8, 128, 32000
SEQUENCE, BATCH = 4096, 2
PRODUCTS = [(8192, 8192, 8192), (8192, 6144, 4096), (8192, 28672, 4096), (8192, 4096, 14336), (8192, 32000, 4096)]


def median_time(work, warm_up, rounds, together=1):
    for _ in range(warm_up):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(together):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / together)
    return statistics.median(times)


def products():
    for m, n, k in PRODUCTS:
        a = [torch.rand(m, k, device="cuda", dtype=torch.bfloat16) * 2 - 1 for _ in range(3)]
        b = [torch.rand(n, k, device="cuda", dtype=torch.bfloat16) * 2 - 1 for _ in range(3)]
        turn = [0]

        def once():
            turn[0] += 1
            return a[turn[0] % 3] @ b[turn[0] % 3].t()

        seconds = median_time(once, 10, 9, 10)
        yield {"m": m, "n": n, "k": k, "accumulate_fp32": False, "microseconds": seconds * 1e6,
               "tflops": 2 * m * n * k / seconds / 1e12}


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        make = lambda rows, columns: torch.nn.Linear(columns, rows, bias=False)
        self.norm1, self.norm2 = torch.nn.RMSNorm(HIDDEN), torch.nn.RMSNorm(HIDDEN)
        self.qkv = make((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN)
        self.out = make(HIDDEN, HEADS * HEAD_DIM)
        self.up = make(2 * FFN, HIDDEN)
        self.down = make(HIDDEN, FFN)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).split([HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM], -1)
        q, k, v = (t.view(BATCH, SEQUENCE, -1, HEAD_DIM).transpose(1, 2) for t in (q, k, v))

        def turn(t):
            a, b = t.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        attended = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(BATCH, SEQUENCE, HEADS * HEAD_DIM))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids, targets, cos, sin):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).float().view(-1, VOCAB), targets.view(-1))


def compiled_by(kind, model):
    if kind in ("compiled", "compiled_cudnn"):
        return torch.compile(model)
    return torch.compile(model, mode="reduce-overhead") if kind == "graphs" else model


def attention_of(kind):
    """A context in which attention is that of the kind."""
    if kind not in ("cudnn", "compiled_cudnn", "graphs"):
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)


def layers(kind):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model().to(torch.bfloat16)
    # fp32 main copies, as mgplan keeps them: the optimizer steps these, and the bf16 parameters are copied from them.
    parameters = list(model.parameters())
    mains = [p.detach().float().requires_grad_() for p in parameters]
    optimizer = torch.optim.AdamW(mains, lr=1e-4, fused=True)
    angles = torch.outer(torch.arange(SEQUENCE, device="cuda").double(),
                         10000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda").double() / HEAD_DIM))
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    ids = torch.randint(0, VOCAB, (BATCH, SEQUENCE + 1), device="cuda")
    forward = compiled_by(kind, model)
    losses = []

    def step():
        if kind == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        loss = forward(ids[:, :-1], ids[:, 1:], cos, sin)
        loss.backward()
        with torch.no_grad():
            for main, parameter in zip(mains, parameters):
                main.grad = parameter.grad.float()
                parameter.grad = None
            torch.nn.utils.clip_grad_norm_(mains, 1.0)
            optimizer.step()
            torch._foreach_copy_(parameters, mains)
        losses.append(loss.detach().clone())  # a graph's output is overwritten by its next launch

    with attention_of(kind):
        seconds = median_time(step, 5 if kind == "graphs" else 3, 10)
    weights = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD_DIM + HEADS * HEAD_DIM * HIDDEN + 3 * HIDDEN * FFN
    per_token = 3 * (LAYERS * (2 * weights + 2 * 2 * HEADS * HEAD_DIM * SEQUENCE / 2) + 2 * HIDDEN * VOCAB)
    tokens = BATCH * SEQUENCE
    return {"kind": kind, "milliseconds": seconds * 1e3, "tokens_per_second": tokens / seconds,
            "model_tflops": per_token * tokens / seconds / 1e12, "first_loss": losses[0].item(), "last_loss": losses[-1].item(),
            "peak_bytes": torch.cuda.max_memory_allocated()}


def main(words):
    kinds = ("products", "eager", "cudnn", "compiled", "compiled_cudnn", "graphs")
    if len(words) != 2 or words[0] not in kinds:
        print(f"usage: torch_reference.py {' | '.join(kinds)} FILE")
        return 2
    kind, path = words
    if not torch.cuda.is_available():
        print("torch_reference: PyTorch finds no GPU")
        return 77
    result = {"card": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda,
              "cudnn": torch.backends.cudnn.version()}

    def save():
        with open(path + ".part", "w") as file:
            json.dump(result, file, indent=2)
        os.replace(path + ".part", path)

    if kind == "products":
        result["products"] = []
        for product in products():
            result["products"].append(product)
            save()
    else:
        result["layers"] = layers(kind)
        save()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
