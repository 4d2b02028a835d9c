"""docs/kernels.md, from the step's ops and what PTX and ptxas say of its kernels."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs/kernels.md"
LOADS = "## Loads of each kernel"
# NVIDIA H100 architecture white paper, "compute capability 9.0": of each multiprocessor; registers go out in eights (CUDA C++
# Programming Guide, "Compute Capabilities").
REGISTERS, THREADS, BLOCK = 65536, 2048, 256



def resident_threads(registers):
    """Threads of a multiprocessor, in blocks of 256."""
    rounded = max(8, -(-registers // 8) * 8)
    return min(THREADS // BLOCK, REGISTERS // (rounded * BLOCK)) * BLOCK


def short(kernel):
    return kernel.replace("run_", "", 1)


def in_flight(fact):
    """KiB that a full multiprocessor waits for in the loop with the most."""
    size = max((size for _, size in fact["loops"]), default=0)
    return size * resident_threads(fact["registers"]) / 1024


def grouped(step, wanted):
    """Ops of the same name and kernels together: (op, kernels, calls, bytes, seconds), in the order in which they first come."""
    groups = {}
    for op in step.ops:
        if not wanted(op):
            continue
        key = (op["op"], tuple(dict.fromkeys(op["kernels"])), step.is_memory_bound(op))
        calls, size, seconds = groups.get(key, (0, 0, 0))
        groups[key] = (calls + 1, size + step.bytes_of(op), seconds + step.floor(op))
    return [(*key, *value) for key, value in groups.items()]


def table_of_ops(step, wanted):
    lines = ["| op | calls | MB moved | floor, us | kernels |", "|---|---|---|---|---|"]
    for name, kernels, bound, calls, size, seconds in grouped(step, wanted):
        by = ", ".join(f"`{short(kernel)}`" for kernel in kernels) or "none"
        lines.append(f"| {name}{'' if bound else ' (FLOPs)'} | {calls} | {size / 1e6:.1f} | {seconds * 1e6:.1f} | {by} |")
    return lines


def what_fp8_adds(steps):
    """Ops that a step in fp8 has beside those of bf16, of one layer, recipe by recipe; and their kernels with the loads of each."""
    in_bf16 = {op["op"] for op in steps[0].ops}
    lines = []
    for step in steps[1:]:
        def wanted(op):
            return op["op"] not in in_bf16 and op["range"] in ("layer forward 1", "layer backward 1", "optimizer")

        seconds = sum(step.floor(op) for op in step.ops if wanted(op) and op["range"] != "optimizer")
        lines += [f"`{step.recipe}`: no step is shorter than **{step.total() * 1e3:.1f} ms**; a layer's casts have {seconds * 1e3:.2f} ms of it.", "",
                  *table_of_ops(step, wanted), ""]
    return lines


def loads_of(kernels, facts):
    lines = ["| kernel | share of the floors | loads of 16 bytes, loop by loop | KiB under way | stores of 16 bytes | registers |",
             "|---|---|---|---|---|---|"]
    for kernel, share in sorted(kernels.items(), key=lambda item: (-round(item[1], 4), item[0])):
        fact = facts[kernel]
        loads = ", ".join(str(words) for words, _ in fact["loops"]) or "none"
        lines.append(f"| `{short(kernel)}` | {share:.2%} | {loads} | {in_flight(fact):.0f} | {fact['stores'] or 'none'} | {fact['registers']} |")
    return lines


def largest_but_for(known, steps):
    """Kernel that is not known -> its share of the step in which it has most."""
    shares = {}
    for step in steps:
        for kernel, share in step.own_kernels().items():
            if kernel not in known:
                shares[kernel] = max(share, shares.get(kernel, 0))
    return shares


def kernels_of(step):
    return {kernel for op in step.ops for kernel in op["kernels"]}


def what_others_add(steps, known):
    """Of each other model the memory-bound ops of its layers that start a kernel which is not known."""
    lines = []
    for step in steps:
        def wanted(op):
            return op in step.counted() and step.is_memory_bound(op) and any(kernel not in known for kernel in op["kernels"])

        bound = sum(step.floor(op) for op in step.counted() if step.is_memory_bound(op))
        lines += [f"{step.model}, {step.layers} layers: **{step.total() * 1e3:.1f} ms**, of which kernels that memory limits have {bound * 1e3:.1f} ms.", "",
                  *table_of_ops(step, wanted), ""]
    return lines


def written(steps, facts, compiler):
    step, of_fp8, of_others = steps[0], [each for each in steps[1:] if each.recipe], [each for each in steps if each.other_model]

    def one(op):
        return op["range"] in ("layer forward 1", "layer backward 1")

    def outside(op):
        return not op["range"].startswith("layer ")

    bound = sum(step.floor(op) for op in step.ops if step.is_memory_bound(op))
    total = step.total()
    layer = sum(step.floor(op) for op in step.ops if one(op))
    layer_bound = sum(step.floor(op) for op in step.ops if one(op) and step.is_memory_bound(op))
    lines = [
        "# What the GPU's kernels move", "",
        "Written by `ninja -C build/release write_kernels_page` (`tests/runtime/cuda/kernels/kernels.py`); a test holds it to that. **Nothing here was",
        f"measured on a GPU**: bytes follow from shapes, loads and registers from what nvcc and ptxas {compiler} make of the kernels for sm_90.", "",
        f"The step is that of `gpu_all bench --layers`: {step.model}, {step.tokens[0]} sequences of {step.tokens[1]} tokens, bf16 with fp32 state,",
        f"one rank. A floor is the time of all bytes of an op, each operand once, at {step.bandwidth / 1e12:g} TB/s, or of all FLOPs of a product or of",
        f"attention at {step.flops / 1e12:g} TFLOP/s: what NVIDIA's data sheet says of an H200 (`configs/clusters/dgx-h200.json`). No card reaches them.", "",
        f"- By arithmetic no step of it is shorter than **{total * 1e3:.1f} ms**, of which kernels that memory limits have {bound * 1e3:.1f} ms.",
        f"- A layer has {layer * 1e3:.2f} ms of that, {layer_bound * 1e3:.2f} ms limited by memory.", "",
        "## One layer, forward and backward", "", *table_of_ops(step, one), "",
        "## Outside of the layers: embedding, head, loss, optimizer", "", *table_of_ops(step, outside), "",
        "## What fp8 adds", "",
        "The same step with `--precision` as named: ops of one layer that bf16 has not, weights' casts of a step with one microbatch among them,",
        "and of the optimizer. Products in fp8 have the data sheet's rate of fp8, also for `mxfp8`, whose kernels a Blackwell runs.",
        "`Fp8Format<3, 7, 126>` is e4m3, `Fp8Format<2, 15, 123>` e5m2.", "",
        *what_fp8_adds([step, *of_fp8]),
        "## What other models add", "",
        "Layers of presets with fewer layers, as many tokens, bf16, one rank; of mixtures the products of all experts are among the floors. Ops whose kernels",
        "an 8B-shaped Llama does not start. Of a scan and a delta rule, bytes are those that their kernels hand to each other, their products' among them.", "",
        *what_others_add(of_others, kernels_of(step)),
        LOADS, "",
        "Loads of 16 bytes that a thread has under way before it needs the first, for each loop that reads memory; bytes that a full multiprocessor",
        "waits for in the best of them, with as many blocks of 256 threads as the registers allow. By Little's law a card needs bandwidth times",
        "latency: the more, the less it waits. The share of a kernel is that of all ops that start it; kernels below 0.05 % are left out. The",
        "limits that the test holds, and which kernels read only a small part of what their op does, stand in",
        "`tests/runtime/cuda/kernels/limits.json`: from 1 % of the step on a kernel must have two such loads, and stores of 16 bytes,",
        "or the table says why not.", "",
        *loads_of(step.own_kernels(), facts), "",
        "Of fp8, each with its share of the recipe in which that is largest:", "",
        *loads_of(largest_but_for(kernels_of(step), of_fp8), facts), "",
        "Of other models, each with its share of the layers in which that is largest:", "",
        *loads_of(largest_but_for(kernels_of(step), of_others), facts)]
    return "\n".join(lines) + "\n"


def is_current(text):
    """Whether the tree's page says this; what another compiler makes of the kernels may differ."""
    if not PAGE.exists():
        return False
    old = PAGE.read_text()
    if old.splitlines()[3] == text.splitlines()[3]:
        return old == text

    def without_compiler(page):
        return [line for line in page.split(LOADS)[0].splitlines() if "ptxas" not in line]

    return without_compiler(old) == without_compiler(text)
