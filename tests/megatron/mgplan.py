"""Runs the mgplan command: plans of every preset, their exports, the gate's verdicts."""

import json
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The answers of `check --gate` (docs/megatron.md): 0 runs, 3 does not fit, 2 is illegal, 6 cannot say.
LEGAL, ILLEGAL, CANNOT_SAY = "legal", "illegal", "cannot say"
FIXED = 3  # layouts of each preset that are not drawn
ANSWERS = {0: LEGAL, 3: LEGAL, 2: ILLEGAL, 6: CANNOT_SAY}


class Failed(Exception):
    def __init__(self, done):
        super().__init__((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        self.code = done.returncode


def run(program, *words, seconds=120):
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise Failed(done)
    return done


def presets(program):
    """Parameters of each preset that NVIDIA GPUs train."""
    return {model["name"]: model["total_parameters"] for model in json.loads(run(program, "models", "--format", "json").stdout)["models"]}


def predicting(program, folder):
    """A hybrid with two depths of multi-token prediction, each attention and experts in one layer, which its decoder lacks: {path: parameters}."""
    name = "nemotron-3-nano-30b-a3b"
    model = json.loads(run(program, "models", "show", name, "--format", "json").stdout)
    kinds = model["layer_kinds"]["kinds"]
    parts = {kind["name"]: kind["parts"] for kind in kinds}
    norm = parts["attention"][0] | {"copies": 2}
    kinds.append({"name": "attention+moe", "parts": [norm, *parts["attention"][1:], *parts["moe"][1:]]})
    model["layer_kinds"]["prediction"] = len(kinds) - 1
    model["mtp_layers"] = 2
    path = Path(folder) / f"{name}-predicting.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(model), encoding="utf-8")
    return {str(path): presets(program)[name]}


def world_for(parameters):
    """GPUs that leave some layouts of a model's training on 80 GiB each."""
    world = 8
    while world * 2.0e9 < parameters and world < 2048:
        world *= 2
    return world


# Large models with a gate of attention's output, which takes no more tp ranks than there are kv heads: two.
TWO_KV_HEADS = ("qwen3.5-122b-a10b", "qwen3.5-397b-a17b")


def first_layouts(name, parameters):
    """The three layouts of the daily test, of small searches: one on H100, one with context parallelism on H200, one of what recipes for
    Blackwell switch on."""
    world = world_for(parameters)
    tp, pp = ("1,2", "1,2") if parameters < 12e9 else ("2,4", "2,4") if parameters < 80e9 else ("4,8", "4,8" if parameters < 300e9 else "8,16")
    if name in TWO_KV_HEADS:
        tp = "1,2"
    return [
        ["--world", world, "--cluster", "dgx-h100", "--tp", tp, "--pp", pp, "--cp", 1, "--vpp", 1, "--micro-batch", 1, "--recompute", "none,full"],
        ["--world", 2 * world, "--cluster", "dgx-h200", "--tp", tp, "--pp", pp.split(",")[1], "--cp", 2, "--vpp", "1,2", "--micro-batch", 1, "--recompute", "selective"],
        ["--world", world, "--cluster", "gb200-nvl72", "--precision", "mxfp8", "--search", "recipe", "--tp", tp[0], "--pp", pp, "--cp", 1, "--vpp", "1,2",
         "--micro-batch", "1,2"],
    ]


def random_layout(parameters, draw):
    """A search among few layouts; most of these exist."""
    small = world_for(parameters)
    cluster = draw.choice(["dgx-h100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "dgx-b300", "gb300-nvl72", "dgx-a100-80g"])
    world = small * draw.choice([1, 1, 2, 2, 4, 8] + ([3] if small % 8 == 0 else []))
    if cluster == "dgx-a100-80g":
        precisions = ["bf16", "fp16"]
    elif "h" in cluster.split("-")[1][:1]:
        precisions = ["bf16", "bf16", "fp8", "fp8-delayed", "fp8-blockwise"]
    else:
        precisions = ["bf16", "mxfp8", "mxfp8", "fp8", "nvfp4"]
    options = {"--world": world, "--cluster": cluster, "--precision": draw.choice(precisions), "--tp": draw.choice(["1", "2", "4", "8", "1,2", "2,4", "4,8"]),
               "--pp": draw.choice(["1", "2", "4", "8", "1,2", "2,4", "3,5,6", "4,8", "8,16"]), "--vpp": draw.choice(["1", "1", "2", "1,2", "3,4"]),
               "--cp": draw.choice(["1", "1", "1", "2", "1,2", "4"]), "--micro-batch": draw.choice(["1", "1,2", "2,4"])}

    def sometimes(probability, option, *values):
        if draw.random() < probability:
            options[option] = draw.choice(values)

    sometimes(0.4, "--search", "recipe", "recipe", "wide", "vpp", "cuda-graphs", "dispatcher", "recompute", "block", "tp-overlap", "moe-overlap", "optimizer")
    sometimes(0.3, "--seq", "2k", "8k", "16k", "32k")
    sometimes(0.4, "--global-batch", world, 2 * world, 4 * world, 6 * world)
    sometimes(0.12, "--optimizer", "muon", "sgd", "lion")
    sometimes(0.12, "--sharding", "none", "optimizer", "optimizer_gradients", "full")
    sometimes(0.12, "--offload", "optimizer", "optimizer:0.5", "qkv_linear", "core_attn", "expert_fc1", "moe_act", "optimizer_states")
    sometimes(0.15, "--cuda-graphs", "attn", "layer", "full_iteration", "attn,mlp", "moe_router", "attn,moe_router,moe_preprocess")
    sometimes(0.12, "--recompute", "full", "selective")
    sometimes(0.1, "--cp-comm-type", "p2p", "all_gather", "a2a")
    sometimes(0.1, "--overlap", "tp", "moe")
    sometimes(0.08, "--grad-dtype", "bf16")
    sometimes(0.06, "--order", "tp-cp-ep-pp-dp")
    words = [word for option, value in options.items() for word in (option, value)]
    for probability, flag in ((0.1, "--balance-stages"), (0.08, "--no-distributed-optimizer")):
        if draw.random() < probability:
            words.append(flag)
    pick = draw.choice([1, 1, 1, 2, 3, 5])
    return [*words, "--top", pick, "--pick", pick]


def layouts(models, numbers, seed):
    """(model, number, options) of layouts of each model: those of the numbers 0 to 2 are fixed, the others drawn."""
    for name, parameters in models.items():
        for number in numbers:
            fixed = first_layouts(name, parameters)
            yield name, number, fixed[number] if number < len(fixed) else random_layout(parameters, random.Random(f"{seed} {name} {number}"))


def option(options, name, default=None):
    words = list(options)
    return words[words.index(name) + 1] if name in words else default


def plan_and_export(program, folder, version, model, number, options):
    """Exports for that version of Megatron-LM. Returns what was written, or the message with which mgplan refused: {"model", "number", "options",
    "stage", "message", "plan", "script", "yaml"}."""
    row = {"model": model, "number": number, "options": [str(word) for word in options], "stage": "exported", "message": ""}
    stem = Path(folder) / f"{Path(model).name.removesuffix('.json')}-{number}"
    plan = f"{stem}.json"
    world = option(options, "--world")
    for attempt in range(4):  # larger worlds where nothing fits
        try:
            words = [word if word != world else world << attempt for word in options]
            run(program, "plan", "--model", model, *words, "--threads", 1, "--save-plan", plan, "--format", "json")
            row["world"] = world << attempt
            break
        except Failed as failure:
            row.update(stage="no plan", message=str(failure))
            if failure.code != 3:
                return row
        except subprocess.TimeoutExpired:
            row.update(stage="no plan", message="no answer within 120 s")
            return row
    else:
        return row
    row.update(stage="exported", message="", plan=plan)
    for to, ending in (("megatron-args", "sh"), ("megatron-yaml", "yaml")):
        try:
            row[ending] = f"{stem}.{ending}"
            row["lost"] = run(program, "export", plan, "--to", to, "--megatron", version, "--output", row[ending]).stderr
        except Failed as failure:
            row.update(stage="not exported", message=str(failure))
    return row


def export_all(program, folder, version, chosen, workers):
    """plan_and_export of every (model, number, options)."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda item: plan_and_export(program, folder, version, *item), chosen))


def gate(program, script, world, cluster):
    """Returns (answer, the line that it prints)."""
    done = subprocess.run([str(program), "check", "--gate", "--world", str(world), "--cluster", cluster, "--megatron-args", str(script)], capture_output=True,
                          text=True, timeout=120, check=False)
    line = done.stdout.strip() or (done.stderr.strip().splitlines() or [""])[-1]
    return ANSWERS.get(done.returncode, f"exit code {done.returncode}"), line
