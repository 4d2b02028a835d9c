#!/usr/bin/env python3
"""Is the first answer the best one? For jobs that people ask about, the first row of the plain command against what narrower or wider
searches find with the same dtypes, and the order of its table.

    first_answer.py MGPLAN [--jobs PART] [--most SECONDS]

A line for each job: seconds of a step of the first row, and what is faster, dominated or out of order. Exit 1 where there is any.
"""

import argparse
import json
import re
import subprocess
import sys

# Jobs of five kinds of users, and as many of other models, clusters and sizes.
JOBS = """
--world 16 --model llama3-8b
--world 8 --model llama3-8b
--world 8 --model llama3-8b --precision fp8 --seq 8k --global-batch 128
--world 4 --model llama3-8b --cluster dgx-a100-80g
--world 8 --model llama3-8b --cluster a100-pcie-80g
--world 8 --model llama3-8b --cluster l40s
--world 64 --model llama3-70b --cluster l40s
--world 8 --model llama3.1-8b --cluster dgx-a100-40g --seq 32k
--world 8 --model llama3.1-8b --seq 128k
--world 64 --model llama3.1-8b --seq 1M
--world 8 --model qwen3-8b --cluster dgx-h200 --seq 128k
--world 64 --model llama3-70b --seq 8k
--world 256 --model llama3.1-70b --seq 128k
--world 64 --model llama3-70b --cluster gb200-nvl72 --precision fp8
--world 1024 --model llama3.1-405b --precision fp8
--world 256 --model llama3.1-405b --cluster gb200-nvl72 --precision fp8
--world 16384 --model llama3.1-405b
--world 4096 --model gpt3-175b
--world 1024 --model deepseek-v3
--world 1024 --model deepseek-v3 --precision fp8 --global-batch 8192
--world 512 --model deepseek-v3
--world 256 --model deepseek-v3 --cluster gb300-nvl72 --precision mxfp8 --global-batch 4096
--world 64 --model qwen3-30b-a3b --cluster dgx-h200
--world 16 --model qwen3-30b-a3b --precision fp8
--world 256 --model qwen3-235b-a22b --precision fp8
--world 64 --model gpt-oss-120b
--world 16 --model nemotron-3-nano-30b-a3b --precision fp8
--world 64 --model mixtral-8x7b --cluster mi300x
--world 8 --model qwen3-14b --seq 8k --global-batch 128
--world 24 --model phi-4
--world 64 --model llama3-70b
--world 128 --model glm-4.5-air
--world 2048 --model kimi-k2
--world 72 --model qwen3-30b-a3b --cluster gb200-nvl72
--world 1 --model qwen2.5-0.5b --cluster l40s
--world 2 --model qwen2.5-1.5b
--world 32 --model gemma3-27b
--world 40 --model qwen2.5-32b
--world 96 --model llama3-70b --cluster dgx-b200
--world 12 --model llama3-8b
--world 32 --model mixtral-8x22b
--world 8 --model mixtral-8x7b --cluster dgx-h200
--world 128 --model gpt3-175b --cluster dgx-a100-80g
--world 16 --model gpt-oss-20b
--world 32 --model qwen3-next-80b-a3b
--world 64 --model llama4-scout --cluster dgx-b200
--world 8 --model mistral-7b-v0.1 --seq 32k
--world 16 --model deepseek-v2-lite
--world 256 --model deepseek-v2
--world 48 --model qwen3-32b --cluster dgx-h200
--world 512 --model llama3-70b --seq 16k
--world 8 --model llama3-8b --cluster mi325x
--world 16 --model llama3-70b --cluster mi355x
--world 128 --model minimax-m2 --cluster dgx-b300
--world 64 --model qwen3-235b-a22b --cluster gb300-nvl72 --precision mxfp8
--world 8 --model qwen3-4b --global-batch 256
""".strip().splitlines()

# What a user may add to find something faster that trains the same numbers.
OPTIONS = ["--balance-stages", "--sharding full", "--sharding optimizer", "--search wide", "--search recipe", "--search plain", "--recompute none",
           "--recompute selective", "--recompute full", "--cuda-graphs layer", "--cuda-graphs attn"]
MIXTURE_OPTIONS = ["--dispatcher alltoall", "--dispatcher deepep", "--dispatcher hybridep", "--cuda-graphs attn,moe_router,moe_preprocess"]
LIMIT = 1e-6  # of a time: floating point


def run(program, words, most):
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=most)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode in (0, 3) else None


def first_of(plans, dtypes):
    """The first plan with these dtypes that keeps its optimizer's state on the GPU."""
    for plan in plans:
        layout = plan["layout"]
        if (dtypes is None or layout["optimizer_dtypes"] == dtypes) and not layout["offload"]:
            return plan
    return None


def rows_of(table):
    """s/step, worst, GiB, why of each row of a table for people; rows without a rank (a recipe's) are left out."""
    lines = table.splitlines()
    head = next((i for i, line in enumerate(lines) if line.split()[:1] == ["#"]), None)
    if head is None:
        return []
    spans = [match.span() for match in re.finditer("-+", lines[head + 1])]
    spans[0], spans[-1] = (0, spans[0][1]), (spans[-1][0], None)
    names = [lines[head][start:end].strip() for start, end in spans]
    rows = []
    for line in lines[head + 2:]:
        if not line.strip():
            break
        cells = {name: line[start:end].strip() for name, (start, end) in zip(names, spans, strict=True)}
        if cells["#"].isdigit():
            rows.append(cells)
        elif not cells["#"] and rows:
            rows[-1]["why"] += " " + cells["why"]
    return rows


def table_faults(rows):
    """What is wrong with the rows of a table: dominated without a reason, out of order."""
    try:
        figures = [[float(row[name].replace(",", "")) for name in ("s/step", "worst", "GiB")] for row in rows]
    except (KeyError, ValueError):
        return ["table not read"]
    faults = []
    for i, mine in enumerate(figures):
        better = [other for j, other in enumerate(figures) if j != i and all(o <= m for o, m in zip(other, mine)) and other != mine]
        if better and not rows[i]["why"].strip():
            faults.append(f"row {rows[i]['#']} is dominated and has no reason")
    if figures and figures[0][0] > min(row[0] for row in figures):
        faults.append("row 1 is not the fastest shown")
    return faults


def judge(program, job, most):
    """(seconds of the first row, faults)."""
    words = job.split()
    answer = run(program, [*words, "--format", "json"], most)
    if answer is None:
        return None, ["no answer"]
    answer = json.loads(answer)
    best = first_of(answer["plans"], None)
    if best is None:
        return None, []
    seconds, dtypes = best["predicted"]["iteration_seconds"], best["layout"]["optimizer_dtypes"]
    faults = table_faults(rows_of(run(program, words, most) or ""))
    for option in OPTIONS + (MIXTURE_OPTIONS if any("ep" in plan["layout"] and plan["layout"]["dispatcher"] for plan in answer["plans"]) else []):
        other = run(program, [*words, *option.split(), "--format", "json", "--top", "200"], most)
        if other is None:
            continue  # refused, or longer than anybody waits
        other = json.loads(other)
        plan = first_of(other["plans"], dtypes)
        if plan is None or other["batch"] != answer["batch"]:
            continue
        gain = 1 - plan["predicted"]["iteration_seconds"] / seconds
        if gain > LIMIT:
            faults.append(f"{option}: {100 * gain:.2f} % faster")
    return seconds, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--jobs", default="", help="only jobs that hold this text")
    parser.add_argument("--most", type=float, default=120, help="seconds that one command may take")
    given = parser.parse_args()
    wrong = 0
    jobs = [job for job in JOBS if given.jobs in job]
    for job in jobs:
        seconds, faults = judge(given.program, job, given.most)
        wrong += 1 if faults else 0
        print(f"{job}: {'nothing fits' if seconds is None else f'{seconds:.3f} s'}; {'; '.join(faults) or 'the best'}", flush=True)
    print(f"{len(jobs) - wrong} of {len(jobs)} jobs: the first answer is the best")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
