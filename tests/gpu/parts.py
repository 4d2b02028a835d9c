"""The commands of tests/gpu/run, and the order of their parts."""

import dataclasses

from correctness import correctness
from prediction import prediction
from speed import speed

# What tells most, in that order: whether numbers are right, how fast the layers are, and as much of the cluster file as there is time for.
# Each group ends by its share of the command's seconds; what one leaves goes to the next.
FIRST = ((0.45, ("card", "fp32", "bf16", "fp8", "attention", "nccl", "training_bf16", "run")),
         (0.8, ("layers", "torch_eager", "torch_cudnn", "products", "torch_products")),
         (1.0, ("calibration",)))


def first(build):
    parts = {**correctness(build), **speed(build)}
    return {name: dataclasses.replace(parts[name], until=until) for until, names in FIRST for name in names}


def rest(build):
    """All parts of the three commands: those of `first`, then what needs its cluster file, then what else speed has, then correctness."""
    return {**first(build), **prediction(build), **speed(build), **correctness(build)}


def in_order(parts, results):
    """The parts as a command runs them: those that failed already behind those that nothing is known of, and judges of others last."""
    sources = results["bundle"]["sources"]

    def turn(name):
        before = results["parts"].get(name, {})
        failed = before.get("status") == "failed" and before.get("sources") == sources and not parts[name].goes_on
        return 2 if parts[name].again else 1 if failed else 0
    return {name: parts[name] for name in sorted(parts, key=turn)}


COMMANDS = {"correctness": correctness, "speed": speed, "prediction": prediction, "first": first, "rest": rest}
