#!/usr/bin/env python3
"""What the GPU's kernels of a step load, move and take: kernels.py check|write --nvcc NVCC --ptx FILE --shapes PROGRAM

check compares the kernels of an 8B-shaped step, in bf16 and by each recipe of fp8, and of layers of other kinds of models with limits.json, and
docs/kernels.md with what write writes there; exit 1 says what differs. The build makes the files, kernel_step_ptx and kernel_step_shapes, and calls
write for its target write_kernels_page.

The step is that of tests/gpu/layers_task.hpp. --shapes lists its ops with their bytes and kernels, --ptx is what nvcc made of those.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import page
import ptx

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
CARD = ROOT / "configs/clusters/dgx-h200.json"
# A thread that loads less leaves bandwidth unused, by Little's law (runtime/cuda/ops/packs.hpp).
WANTED_LOADS = 2
SHARE = 0.01  # of the step, from which on a kernel must load so
LEAST = 0.0005  # below which nobody looks at it


class Step:
    """A step's ops, and the seconds at the card's published rates below which none can be. `of`: another recipe of fp8, {"recipe", "ops"}, or a
    few layers of another model, {"model", "layers", "ops"}, whose shares are those of its layers alone."""

    def __init__(self, shapes, card, of=None):
        of = of or {}
        self.model, self.layers, self.tokens = of.get("model", shapes["model"]), of.get("layers", shapes["layers"]), (shapes["micro_batch"], shapes["sequence"])
        self.bandwidth, self.flops, self.fp8_flops = card["memory_bandwidth"], card["peak_flops"]["bf16"], card["peak_flops"].get("fp8")
        self.recipe, self.ops, self.other_model = of.get("recipe"), of.get("ops", shapes["ops"]), "model" in of

    def is_memory_bound(self, op):
        if op["product"] or any(kernel.startswith("cuDNN") for kernel in op["kernels"]):
            return False
        if "cuBLASLt" not in op["kernels"]:
            return True
        # Products among other kernels, as a scan has them.
        return any(kernel.startswith("run_") for kernel in op["kernels"]) and self.bytes_of(op) / self.bandwidth >= op["flops"] / self.flops

    def bytes_of(self, op):
        return op["read"] + op["written"]

    def floor(self, op):
        """Seconds: all bytes once, or all FLOPs of a product or of attention."""
        by_bytes = self.bytes_of(op) / self.bandwidth
        return by_bytes if self.is_memory_bound(op) else max(by_bytes, op["flops"] / (self.fp8_flops if op.get("fp8") else self.flops))

    def counted(self):
        """The ops whose floors shares are of."""
        return [op for op in self.ops if not self.other_model or op["range"].startswith("layer ")]

    def total(self):
        return sum(self.floor(op) for op in self.counted())

    def own_kernels(self):
        """Kernel -> its share of the step, each op's floor counted for all of its kernels."""
        shares, total = {}, self.total()
        for op in self.counted():
            for kernel in set(op["kernels"]):
                if kernel.startswith("run_"):
                    shares[kernel] = shares.get(kernel, 0) + (self.floor(op) / total if self.is_memory_bound(op) else 0)
        return {kernel: share for kernel, share in shares.items() if share >= LEAST}


def largest_shares(steps):
    """Kernel -> its share of the step in which it has most."""
    shares = {}
    for step in steps:
        for kernel, share in step.own_kernels().items():
            shares[kernel] = max(share, shares.get(kernel, 0))
    return shares


def differences(steps, facts, table):
    """What the table of limits does not allow, in words."""
    said = []
    shares = largest_shares(steps)
    for kernel in sorted(set(table) - set(shares)):
        said.append(f"{kernel} is in limits.json and not in the step: take it out")
    for kernel, share in sorted(shares.items()):
        fact, limit = facts.get(kernel), table.get(kernel)
        if limit is None:
            said.append(f"{kernel} is started by the step and not in limits.json: enter its loops, loads and registers")
        if fact is None:
            said.append(f"{kernel} is started by the step and not compiled by step_kernels.cu: enter its op there")
        if limit is None or fact is None:
            continue
        loops = sum(words >= limit["loads"] for words, _ in fact["loops"])
        if limit["loads"] > 0 and loops < limit["loops"]:
            said.append(f"{kernel} has {loops} loops with {limit['loads']} independent loads of 16 bytes before the first use, and should have "
                        f"{limit['loops']}: {fact['loops']} (loads, bytes) of each loop")
        if fact["stores"] < limit.get("stores", 0):
            said.append(f"{kernel} has {fact['stores']} stores of 16 bytes, and should have {limit['stores']}")
        if fact["registers"] > limit["registers"]:
            said.append(f"{kernel} takes {fact['registers']} registers, and may take {limit['registers']}")
        if fact["spilled"] > limit.get("spilled", 0):
            said.append(f"{kernel} spills {fact['spilled']} bytes of registers, and may spill {limit.get('spilled', 0)}")
        if share >= SHARE and limit["loads"] < WANTED_LOADS and not {"small", "left"} & set(limit):
            said.append(f"{kernel} is {share:.1%} of the step and may not do with fewer than {WANTED_LOADS} loads of 16 bytes at once")
        if share >= SHARE and limit.get("stores", 0) < 1 and not {"small", "writes little", "left"} & set(limit):
            said.append(f"{kernel} is {share:.1%} of the step and may not do without stores of 16 bytes")
    return said


def read_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["check", "write"])
    parser.add_argument("--nvcc", type=pathlib.Path, required=True)
    parser.add_argument("--ptx", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", type=pathlib.Path, required=True)
    return parser.parse_args()


def main():
    arguments = read_arguments()
    shapes = json.loads(subprocess.run([arguments.shapes], capture_output=True, text=True, check=True).stdout)
    card = json.loads(CARD.read_text())
    steps = [Step(shapes, card), *(Step(shapes, card, of) for of in (*shapes["fp8"], *shapes["others"]))]
    facts = ptx.facts_of(arguments.ptx.read_text(), ptx.assembled(arguments.nvcc, arguments.ptx, "sm_90"))
    said = differences(steps, facts, json.loads((HERE / "limits.json").read_text()))
    text = page.written(steps, facts, ptx.version_of(arguments.nvcc))
    if arguments.what == "write":
        page.PAGE.write_text(text)
    elif not page.is_current(text):
        said.append("docs/kernels.md is not what `ninja write_kernels_page` writes: call it")
    for line in said:
        print(line)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
