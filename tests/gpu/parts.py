"""The commands of tests/gpu/run, and the order of their parts."""

import dataclasses

from correctness import correctness
from prediction import plans_of, prediction, rank_part
from speed import TORCH, speed

# On a card that is borrowed for some minutes, what tells most first: whether numbers are right; a cluster file; ranks of large plans predicted
# by it; layers beside PyTorch. Each group ends by its share of the command's seconds, so that those behind it get theirs; what one leaves goes
# to the next, and what one had no time for comes last. RANKS stands for those that pack says are the first.
RANKS = "ranks"
BORROWED = ((0.36, ("card", "bf16", "attention", "fp32", "fp8", "nccl", "training_bf16", "run")),
            (0.62, ("memory_of_context", "calibration")),
            (0.85, (RANKS,)),
            (1.0, ("layers", *(f"torch_{kind}" for kind in reversed(TORCH)), "products", "torch_products")))


def first_ranks(build):
    return [rank_part(plan) for plan in plans_of(build) if plan.get("first")]


def borrowed(build):
    """All parts of the three other commands, in another order."""
    everything = {**prediction(build), **speed(build), **correctness(build)}
    until = {name: share for share, group in BORROWED for each in group for name in (first_ranks(build) if each == RANKS else (each,))}
    return {name: dataclasses.replace(everything[name], until=until.get(name, 1.0)) for name in (*until, *everything)}


def in_order(parts, results):
    """The parts as a command runs them: those that failed already behind those that nothing is known of, and judges of others last."""
    sources = results["bundle"]["sources"]

    def turn(name):
        before = results["parts"].get(name, {})
        failed = before.get("status") == "failed" and before.get("sources") == sources and not parts[name].goes_on
        return 2 if parts[name].again else 1 if failed else 0
    ordered = {name: parts[name] for name in sorted(parts, key=turn)}
    return {name: part if turn(name) == 0 else dataclasses.replace(part, until=1.0) for name, part in ordered.items()}


COMMANDS = {"correctness": correctness, "speed": speed, "prediction": prediction, "borrowed": borrowed}
