#!/usr/bin/env python3
"""Counts PMIx fences of a Slurm job that some rank left before another had entered them: pmix_fences.py [--starts 15] [default|tree|ring ...]

Starts a Slurm of four nodes on this machine (slurm_cluster), and in it jobs of 16 ranks that go through six fences, every second one without
data. All ranks read one clock. A fence that holds is left by nobody before the last has entered it. Needs libpmix-dev, gcc and what
slurm_cluster needs. docs/measurements/2026-11-26-slurm-fence.md has the result.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RANKS = 16
PMIX = "/usr/lib/x86_64-linux-gnu/pmix2/include"


def times(output):
    """For each rank its fences: (entered, left) in seconds."""
    ranks = []
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["rank"]:
            ranks.append(list(zip(map(float, words[2::2]), map(float, words[3::2]))))
    return ranks


def broken_fences(ranks):
    """Which fences some rank left before another had entered them."""
    return [index for index, fence in enumerate(zip(*ranks)) if min(left for _, left in fence) < max(entered for entered, _ in fence)]


def count(kind, starts, program, environment):
    if kind != "default":
        environment = environment | {"SLURM_PMIX_FENCE": kind}
    fences = broken = without_data = 0
    for _ in range(starts):
        done = subprocess.run(["srun", "--mpi=pmix", "--nodes=4", f"--ntasks={RANKS}", "--ntasks-per-node=4", program],
                              env=environment, capture_output=True, text=True, timeout=120)
        ranks = times(done.stdout)
        if done.returncode != 0 or len(ranks) != RANKS:
            sys.exit(f"srun ended with {done.returncode}, {len(ranks)} of {RANKS} ranks reported: {done.stderr}")
        found = broken_fences(ranks)
        fences += len(ranks[0])
        broken += len(found)
        without_data += sum(index % 2 for index in found)
    print(f"{kind}: {broken} of {fences} fences did not hold, {without_data} of them without data, in {starts} starts", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("kinds", nargs="*", default=["default", "tree", "ring"])
    arguments = parser.parse_args()
    if unknown := set(arguments.kinds) - {"default", "tree", "ring"}:
        parser.error(f"{' '.join(sorted(unknown))}: no kind of fence; give some of default, tree, ring")
    if arguments.starts < 1:
        parser.error(f"--starts = {arguments.starts} must be at least 1")
    with tempfile.TemporaryDirectory(prefix="mgplan-fences-") as folder:
        program = f"{folder}/fences"
        subprocess.run(["gcc", "-I", PMIX, HERE / "pmix_fences.c", "-lpmix", "-o", program], check=True)
        subprocess.run([HERE / "slurm_cluster", "start", f"{folder}/slurm", "4", "4"], check=True)
        try:
            for kind in arguments.kinds:
                count(kind, arguments.starts, program, os.environ | {"SLURM_CONF": f"{folder}/slurm/slurm.conf"})
        finally:
            subprocess.run([HERE / "slurm_cluster", "stop", f"{folder}/slurm"], check=False)


if __name__ == "__main__":
    main()
