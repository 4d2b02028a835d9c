#!/usr/bin/env python3
"""Plans random models on random worlds, exports them for Megatron-LM, and holds each argument list against its rules.

    export_rules.py MGPLAN [--pairs N] [--seed S]

The rules are told here once more, from Megatron-LM's own code and without mgplan's: what its arguments, rank groups, schedules
and stage splits refuse (megatron/training/arguments.py; megatron/core: parallel_state.py, model_parallel_config.py,
transformer/transformer_config.py, transformer/pipeline_parallel_layer_layout.py, pipeline_parallel/schedules.py). A pair that no
layout fits (exit code 3) counts for nothing; others are drawn until N plans (default 40) were judged. Some pairs pin pp, vpp, the
micro batch or recompute, so that deep and interleaved pipelines are met. Prints one line per offence and exits 1 when there is any.
"""

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def expand_layout(text):
    """The stages of a layout string, each its letters: first (…)*n, then x*n, once, as Megatron-LM does."""
    text = text.replace(",", "")
    if " " in text:
        raise ValueError("blanks")
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    if "(" in text or ")" in text:
        raise ValueError("parentheses without a count, or nested")
    text = re.sub(r"(.)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    if not set(text) <= set("EtmL|"):
        raise ValueError(f"letters {sorted(set(text) - set('EtmL|'))}")
    return text.split("|")


class Arguments:
    """The words of an exported list by name; numbers where they are numbers, True for switches."""

    def __init__(self, words):
        self.values = {}
        name = None
        for word in words:
            if word.startswith("--"):
                name = word
                if name in self.values:
                    raise ValueError(f"{name} twice")
                self.values[name] = True
            else:
                self.values[name] = int(word) if re.fullmatch(r"-?\d+", word) else word

    def get(self, name, default=None):
        return self.values.get(name, default)


def split_offences(a, pp, vpp, layers, mtp):
    """Rules of the stage split; `vpp` is None without interleaving."""
    first, last = a.get("--decoder-first-pipeline-num-layers"), a.get("--decoder-last-pipeline-num-layers")
    embedding, loss = a.get("--account-for-embedding-in-pipeline-split"), a.get("--account-for-loss-in-pipeline-split")
    layout = a.get("--pipeline-model-parallel-layout")
    chunks = vpp or 1
    if layout is not None:
        if first or last or embedding or loss or a.get("--num-layers-per-virtual-pipeline-stage") or a.get("--num-virtual-stages-per-pipeline-rank"):
            yield "a layout string beside another way to split"
        stages = expand_layout(layout)
        if len(stages) != pp * chunks:
            yield f"{len(stages)} stages for pp {pp} x vpp {chunks}"
        letters = "".join(stages)
        if letters.count("t") != layers:
            yield f"{letters.count('t')} layers in the layout, {layers} in the model"
        if letters.count("E") != 1 or not stages[0].startswith("E"):
            yield "embedding not first, or not once"
        if letters.count("L") != 1 or letters.index("L") < max(letters.rfind("t"), letters.rfind("m")):
            yield "loss not last, or not once"
        with_mtp = [place for place, stage in enumerate(stages) if "m" in stage]
        if letters.count("m") != mtp:
            yield f"{letters.count('m')} multi-token prediction layers in the layout, {mtp} in the model"
        if len(with_mtp) > 1 or with_mtp and (with_mtp[0] // pp != chunks - 1 or pp > 1 and with_mtp[0] % pp == 0):
            yield "multi-token prediction not in one last chunk of a later rank"
        if with_mtp and letters.rfind("t") > letters.index("m"):
            yield "decoder layers behind multi-token prediction"
        return
    if embedding or loss:
        if first or last:
            yield "first or last stage's layers beside embedding and loss that count as layers"
        layers += bool(embedding) + bool(loss)
        if layers % (pp * chunks):
            yield f"{layers} layers and ends over pp {pp} x vpp {chunks}"
        return
    if first is None and last is None:
        if layers % (pp * chunks):
            yield f"{layers} layers over pp {pp} x vpp {chunks}"
        return
    if pp == 2 and first is not None and last is not None and vpp:
        yield "both ends given with two interleaved ranks: Megatron-LM divides by zero"
    middle_ranks = pp - (first is not None) - (last is not None)
    middle = layers - (first or 0) - (last or 0)
    if (middle_ranks == 0) != (middle == 0) or middle_ranks and middle % middle_ranks:
        yield f"{middle} layers left over {middle_ranks} ranks"
    for each in (first, last, middle // middle_ranks if middle_ranks else None):
        if vpp and each is not None and each % vpp:
            yield f"{each} layers of a rank over vpp {vpp}"


def offences(a, world, environment):
    """Sentences on what Megatron-LM would refuse."""
    tp, pp, cp = (a.get(f"--{kind}-parallel-size", 1) for kind in ("tensor-model", "pipeline-model", "context"))
    ep = a.get("--expert-model-parallel-size", 1)
    etp = a.get("--expert-tensor-parallel-size", tp)
    layers, experts = a.get("--num-layers"), a.get("--num-experts")
    if world % (tp * pp * cp) or world % (etp * ep * pp):
        yield f"world {world}: tp {tp} x pp {pp} x cp {cp}, etp {etp} x ep {ep} x pp {pp}"
        return
    dp, edp = world // (tp * pp * cp), world // (etp * ep * pp)
    if a.get("--use-tp-pp-dp-mapping") and dp != edp:
        yield f"pp before dp with dp {dp} and edp {edp}"

    # Schedules.
    mbs, batch = a.get("--micro-batch-size"), a.get("--global-batch-size")
    if batch % (mbs * dp):
        yield f"batch {batch} over micro batch {mbs} x dp {dp}"
        return
    microbatches = batch // (mbs * dp)
    vpp = None
    layout = a.get("--pipeline-model-parallel-layout")
    if layout is not None:
        stages = len(expand_layout(layout))
        if stages % pp:
            yield f"{stages} stages over pp {pp}"
            return
        vpp = stages // pp if stages > pp else None
    elif a.get("--num-virtual-stages-per-pipeline-rank"):
        vpp = a.get("--num-virtual-stages-per-pipeline-rank")
    elif a.get("--num-layers-per-virtual-pipeline-stage"):
        vpp = layers // pp // a.get("--num-layers-per-virtual-pipeline-stage")
    if vpp is not None:
        if pp == 1:
            yield f"vpp {vpp} with pp 1"
        if pp <= 2 and a.get("--no-overlap-p2p-communication"):
            yield "two interleaved ranks without overlapped p2p"
        group = a.get("--microbatch-group-size-per-virtual-pipeline-stage", pp)
        if group < pp or group > microbatches:
            yield f"groups of {group} microbatches with pp {pp} and {microbatches} microbatches"
        elif 0 < microbatches % group < pp:
            yield f"a last group of {microbatches % group} microbatches with pp {pp}"
    elif a.get("--overlap-p2p-communication-warmup-flush"):
        yield "warm-up flush without interleaving"
    if layers is not None:  # a hybrid's pattern states its own stages
        yield from split_offences(a, pp, vpp, layers, a.get("--mtp-num-layers", 0))

    # The model over tp, cp, ep.
    heads = a.get("--num-attention-heads")
    kv_heads = a.get("--num-query-groups", heads) if a.get("--group-query-attention") else heads
    if heads % tp:
        yield f"{heads} heads over tp {tp}"
    if kv_heads % tp and tp % kv_heads:
        yield f"{kv_heads} kv heads over tp {tp}"
    if a.get("--multi-latent-attention") and a.get("--group-query-attention"):
        yield "grouped queries with multi-latent attention"
    if a.get("--ffn-hidden-size") % tp:
        yield f"ffn of {a.get('--ffn-hidden-size')} over tp {tp}"
    if cp > 1 and a.get("--seq-length") % (2 * cp):
        yield f"sequence of {a.get('--seq-length')} over 2 x cp {cp}"
    if a.get("--sequence-parallel"):
        if tp == 1:
            yield "sequence parallel with tp 1"
        if a.get("--seq-length") % tp:
            yield f"sequence of {a.get('--seq-length')} over tp {tp}"
    if experts is None:
        if ep > 1 or etp != tp:
            yield f"ep {ep} or etp {etp} without experts"
    else:
        if experts % ep:
            yield f"{experts} experts over ep {ep}"
        if tp > 1 and ep > 1 and not a.get("--sequence-parallel"):
            yield "experts with tp and ep but without sequence parallel"

    # Training.
    if a.get("--overlap-param-gather") and not (a.get("--use-distributed-optimizer") and a.get("--overlap-grad-reduce")):
        yield "overlapped parameter gather without distributed optimizer and overlapped reduction"
    if a.get("--recompute-granularity") == "full":
        if a.get("--recompute-method") not in ("uniform", "block") or a.get("--recompute-num-layers", 0) < 1:
            yield "full recompute without method or number of layers"
        if a.get("--recompute-modules"):
            yield "modules beside full recompute"
    elif a.get("--recompute-granularity") == "selective" and a.get("--recompute-method"):
        yield "a method of full recompute beside selective"
    if a.get("--bf16") and a.get("--fp16"):
        yield "bf16 and fp16"
    connections = environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if a.get("--use-megatron-fsdp") or a.get("--use-torch-fsdp2"):
        if connections == "1":
            yield "sharded parameters under CUDA_DEVICE_MAX_CONNECTIONS=1"
    elif (tp > 1 or cp > 1) and not a.get("--overlap-moe-expert-parallel-comm") and connections != "1":
        yield f"tp {tp} and cp {cp} on Hopper under CUDA_DEVICE_MAX_CONNECTIONS={connections}"


def self_test():
    """Each rule turns red; a list without offence stays green."""
    dense = ("--num-layers 12 --num-attention-heads 8 --ffn-hidden-size 64 --seq-length 64 --micro-batch-size 1 --global-batch-size 64 "
             "--pipeline-model-parallel-size 4")
    mixture = dense + " --num-experts 8"
    stages = dense + " --pipeline-model-parallel-layout"
    good = (dense, mixture + " --expert-model-parallel-size 2", stages + " Et|(t|)*10tL", stages + " Et*3|t*3|t*3|t*3L",
            dense + " --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 4",
            dense + " --num-virtual-stages-per-pipeline-rank 3 --microbatch-group-size-per-virtual-pipeline-stage 4")
    bad = {
        "world": dense.replace("size 4", "size 3"),
        "x ep 16": mixture + " --expert-model-parallel-size 16",
        "pp before dp": mixture + " --context-parallel-size 2 --use-tp-pp-dp-mapping",
        "batch": dense.replace("64 --pipe", "65 --pipe"),
        "vpp 2 with pp 1": dense.replace("size 4", "size 1") + " --num-virtual-stages-per-pipeline-rank 2",
        "two interleaved": dense.replace("size 4", "size 2") + " --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
        "groups of": dense + " --num-virtual-stages-per-pipeline-rank 3 --microbatch-group-size-per-virtual-pipeline-stage 3",
        "a last group": dense + " --num-virtual-stages-per-pipeline-rank 3 --microbatch-group-size-per-virtual-pipeline-stage 6",
        "layers over": dense.replace("layers 12", "layers 13"),
        "layers and ends": dense + " --account-for-loss-in-pipeline-split",
        "stages over": stages + " Et*3|t*3|t*6L",
        "layers in the layout": stages + " Et*3|t*3|t*3|t*4L",
        "embedding": stages + " t*3|Et*3|t*3|t*3L",
        "loss": stages + " EtL*3|t*3|t*3|t*3",
        "multi-token": stages + " Et*3|t*3|t*3|t*3mL",
        "in one last chunk": stages + " Et*3|mt*3|t*3|t*3mL --mtp-num-layers 2",
        "another way": stages + " Et*3|t*3|t*3|t*3L --account-for-loss-in-pipeline-split",
        "divides by zero": dense.replace("size 4", "size 2") + " --num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 4"
        " --decoder-last-pipeline-num-layers 8",
        "layers left": dense + " --decoder-first-pipeline-num-layers 1",
        "of a rank over vpp": dense + " --num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 3",
        "heads over": dense.replace("heads 8", "heads 9") + " --tensor-model-parallel-size 2",
        "kv heads": dense + " --tensor-model-parallel-size 2 --group-query-attention --num-query-groups 3",
        "grouped queries": dense + " --multi-latent-attention --group-query-attention --num-query-groups 2",
        "ffn": dense.replace("ffn-hidden-size 64", "ffn-hidden-size 65") + " --tensor-model-parallel-size 2",
        "x cp": dense.replace("length 64", "length 66") + " --context-parallel-size 2",
        "with tp 1": dense + " --sequence-parallel",
        "without experts": dense + " --expert-model-parallel-size 2",
        "experts over": mixture.replace("experts 8", "experts 7") + " --expert-model-parallel-size 2",
        "without sequence parallel": mixture + " --expert-model-parallel-size 2 --tensor-model-parallel-size 2",
        "parameter gather": dense + " --overlap-param-gather --use-distributed-optimizer",
        "full recompute without": dense + " --recompute-granularity full",
        "modules beside": dense + " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --recompute-modules mlp",
        "beside selective": dense + " --recompute-granularity selective --recompute-method uniform",
        "bf16 and fp16": dense + " --bf16 --fp16",
        "MAX_CONNECTIONS": dense + " --tensor-model-parallel-size 2",
    }
    wrong = []
    for words in good:
        found = list(offences(Arguments(words.split()), 32, {}))
        if found:
            wrong.append(f"good, but refused: {words}: {found}")
    for expected, words in bad.items():
        found = list(offences(Arguments(words.split()), 32, {}))
        if not any(expected in sentence for sentence in found):
            wrong.append(f"no '{expected}' for {words}: {found}")
    return wrong


def exported(mgplan, words, folder):
    """(arguments, environment) of the best plan of `mgplan WORDS`; None where nothing fits or the pins leave no layout."""
    plan = folder / "plan.json"
    done = subprocess.run([mgplan, *words, "--engine", "megatron", "--top", "1", "--save-plan", str(plan)], capture_output=True, text=True)
    if done.returncode in (2, 3):
        return None
    if done.returncode:
        raise RuntimeError(f"mgplan {shlex.join(words)}: exit code {done.returncode}: {done.stderr}")
    export = subprocess.run([mgplan, "export", str(plan), "--to", "megatron-args"], capture_output=True, text=True)
    if "no flag of Megatron-LM" in export.stderr or "Megatron-LM has no flags" in export.stderr:
        return None  # a network that its flags cannot state, such as those of Llama 4 and MiniMax-01
    if export.returncode:
        raise RuntimeError(f"mgplan {shlex.join(words)}: its plan is not exported: {export.stderr}")
    text = export.stdout
    # Read by the shell it is written for.
    script = f'{text}\nprintf "%s\\0" "${{MEGATRON_ARGS[@]}}"; printf "\\1\\0"; env -0'
    listed, variables = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout.split(b"\1\0")
    environment = dict(entry.decode().split("=", 1) for entry in variables.split(b"\0") if b"=" in entry)
    return Arguments([word.decode() for word in listed.split(b"\0")[:-1]]), environment


def draw(models, rng):
    """Words of `mgplan plan` for a random model and world, sometimes with pins."""
    world = int(2 ** rng.uniform(0, 8))
    if rng.random() < 0.7:  # most clusters are whole nodes
        world = max(1, world // 8) * 8
    words = ["--world", str(world), "--model", rng.choice(models), "--cluster", rng.choice(("dgx-h100", "dgx-h200"))]
    pp = rng.choice([size for size in (1, 2, 3, 4, 6, 8, 12, 16) if world % size == 0])
    if rng.random() < 0.6:
        words += ["--pp", str(pp)]
        if pp > 1 and rng.random() < 0.7:
            words += ["--vpp", rng.choice(("2", "3", "4", "2,3,4,5,6"))]
    if rng.random() < 0.8:  # a fraction of the search
        words += ["--micro-batch", rng.choice(("1", "2", "4"))]
    if rng.random() < 0.3:
        words += ["--recompute", rng.choice(("full", "selective"))]
    if rng.random() < 0.2:
        words += ["--tp", rng.choice(("2", "4", "8"))]
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mgplan")
    parser.add_argument("--pairs", type=int, default=40, help="plans to judge (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = self_test()
    rng = random.Random(options.seed)
    models = [model["name"] for model in json.loads(subprocess.run([options.mgplan, "models", "--format", "json"], capture_output=True, check=True).stdout)["models"]]
    judged = drawn = interleaved = uneven = 0
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        while judged < options.pairs and drawn < 20 * options.pairs:
            words = draw(models, rng)
            drawn += 1
            job = exported(options.mgplan, words, Path(folder))
            if job is None:
                continue
            arguments, environment = job
            wrong += [f"mgplan {shlex.join(words)}: {sentence}" for sentence in offences(arguments, int(words[1]), environment)]
            judged += 1
            seen.add(words[3])
            layout = arguments.get("--pipeline-model-parallel-layout")
            uneven += layout is not None
            interleaved += arguments.get("--num-virtual-stages-per-pipeline-rank") is not None or (
                layout is not None and len(expand_layout(layout)) > arguments.get("--pipeline-model-parallel-size"))
    if judged < options.pairs:
        wrong.append(f"only {judged} of {drawn} pairs have a layout that fits")
    for line in wrong:
        print(line)
    print(f"export_rules: {judged} plans of {len(seen)} models ({interleaved} interleaved, {uneven} with a layout string), {len(wrong)} offences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
