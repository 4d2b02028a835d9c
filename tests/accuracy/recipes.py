"""Published runs of today's recipes, as whole Megatron-LM arguments: mixtures and dense models in 8 and 4 bits, on Hopper and Blackwell.

They are apart from the other records: every switch is known, many ask for what is not computed, and many are one layout that was measured
again with each release of the software. data/recipes.jsonl holds them; README.md says where they come from.
"""

import collections
import itertools
import json
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILE = "recipes.jsonl"
GIB = 2**30
# What a record asks for where its figures stand beside the limits of a test: of these whole parts are not computed.
BESIDE_THE_LIMITS = ("fsdp", "offload", "muon")


class Run:
    """One record with what was predicted for it."""

    def __init__(self, record, predicted):
        self.record = record
        self.kind = "mixtures" if record["moe"] else "dense models"
        self.bits = 16 if record["precision"] == "bf16" else 4 if "fp4" in record["precision"] else 8
        self.seconds = predicted["predicted"]["iteration_seconds"]
        memory = predicted["predicted"]["memory"]
        self.fits = memory["missing_bytes"] == 0
        self.peak, self.limit = memory.get("peak_bytes", 0), memory.get("limit_bytes", 0)
        self.left_out = predicted["not_computed"]
        self.whole = not predicted["not_computed"] and not predicted["unknown"]
        measured = record.get("seconds")
        self.error = self.seconds / measured - 1 if measured else None


def load(folder):
    return [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]


def argument_file(arguments):
    """A Megatron-LM argument file: one flag a line, switches without a value."""
    lines = []
    for name, value in arguments.items():
        if value is True:
            lines.append(f"--{name}")
        elif isinstance(value, list):
            lines.append(f"--{name} " + " ".join(map(str, value)))
        else:
            lines.append(f"--{name} {value}")
    return "\n".join(lines) + "\n"


def simulate_all(mgplan, records, over_limit):
    """Runs in the records' order, and what went wrong."""
    knows_releases = "--software" in subprocess.run([mgplan, "simulate", "--help"], capture_output=True, text=True).stdout
    runs, failures = [], []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        def simulate(numbered):
            number, record = numbered
            path = Path(folder) / f"{number}.args"
            path.write_text(argument_file(record["arguments"]), encoding="utf-8")
            command = [mgplan, "simulate", "--megatron-args", str(path), "--world", str(record["world"]), "--cluster", record["cluster"], "--format", "json"]
            if knows_releases:
                command += ["--software", record["software"]]
            return subprocess.run(command, capture_output=True, text=True, timeout=120)
        for record, done in zip(records, pool.map(simulate, enumerate(records))):
            if done.returncode in (0, over_limit):
                runs.append(Run(record, json.loads(done.stdout)))
            else:
                failures.append(f"{record['id']}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    return runs, failures


def percent(value, signed=False):
    return f"{100 * value:{'+' if signed else ''}.1f}"


def row(name, runs):
    errors = [run.error for run in runs if run.error is not None]
    fits = [run.fits for run in runs if run.record.get("counts_fit")]
    cells = [name, str(len(errors))]
    if errors:
        sizes = [abs(error) for error in errors]
        cells += [percent(statistics.fmean(sizes)), percent(statistics.median(sizes)), percent(statistics.fmean(errors), signed=True)]
    else:
        cells += ["", "", ""]
    cells.append(f"{100 * statistics.fmean(fits):.0f} % of {len(fits)}" if fits else "")
    return "| " + " | ".join(cells) + " |"


def table(runs, key, header):
    lines = [f"| {header} | n | mean | median | bias | fits |", "|---|---:|---:|---:|---:|---:|"]
    groups = collections.defaultdict(list)
    for run in runs:
        if run.error is not None or run.record.get("counts_fit"):
            groups[f"{run.kind}, {key(run)}"].append(run)
    return lines + [row(name, groups[name]) for name in sorted(groups)]


def within_limits(runs):
    """Runs that the limits are about: those that ask for none of BESIDE_THE_LIMITS."""
    def asks(record):
        words = [record["id"], record["model"], record["precision"], record["release"], *record["features"]]
        return any(part in str(word) for word in words for part in BESIDE_THE_LIMITS)
    return [run for run in runs if not asks(run.record)]


def without_room(runs):
    """What is said not to fit of what ran, by how much, and what of it is not computed."""
    lines = []
    for run in sorted(runs, key=lambda run: run.record["id"]):
        if run.record.get("counts_fit") and not run.fits:
            left_out = "; ".join(run.left_out) if run.left_out else "nothing"
            lines.append(f"- {run.record['id']}: {run.peak / GIB:.1f} of {run.limit / GIB:.1f} GiB; not computed: {left_out}")
    return lines


def beyond(runs, most, least_fits):
    """What is wrong with the figures of within_limits(): `most` percent of mean error by kind, at least `least_fits` percent that fit.
    Prints each figure; (found anything wrong)."""
    wrong = False
    judged = within_limits(runs)
    for kind, limit in most.items():
        errors = [abs(run.error) for run in judged if run.kind == kind and run.error is not None]
        if limit is None:
            continue
        error = 100 * statistics.fmean(errors) if errors else float("inf")
        print(f"today's recipes, {kind}: mean error {error:.2f} % over {len(errors)} runs, ceiling {limit:g} %")
        wrong |= error > limit
    if least_fits is not None:
        fits = [run.fits for run in judged if run.record.get("counts_fit")]
        share = 100 * statistics.fmean(fits) if fits else 0
        print(f"today's recipes: {share:.1f} % of {len(fits)} layouts fit, at least {least_fits:g} % must")
        wrong |= share < least_fits
    return wrong


def regrets(runs):
    """Of jobs that ran in several layouts: how much slower the one predicted fastest ran than the one measured fastest."""
    jobs = collections.defaultdict(list)
    for run in runs:
        if run.record.get("job") and run.error is not None:
            jobs[run.record["job"]].append(run)
    lines = ["| job | layouts | regret, % | a random pick |", "|---|---:|---:|---:|"]
    for job, members in sorted(jobs.items()):
        if len(members) > 1:
            measured = [run.record["seconds"] for run in members]
            chosen = min(members, key=lambda run: run.seconds).record["seconds"]
            lines.append(f"| {job} | {len(members)} | {percent(chosen / min(measured) - 1)} | {percent(statistics.fmean(measured) / min(measured) - 1)} |")
    return lines


LAYOUT = ("tensor-model-parallel-size", "context-parallel-size", "expert-model-parallel-size", "expert-tensor-parallel-size",
          "pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage", "micro-batch-size",
          "recompute-granularity", "recompute-modules", "recompute-num-layers")
TOLD_APART = 0.05  # more than equal arguments differ from release to release


def ordered_pairs(runs):
    """(all, right, wrong, names of the wrong) by kind: of one job every two argument lists whose times differ by more than 5 %, and which of
    them ran longer. A list that was measured with several releases counts once, by its medians. "layout": they differ in it."""
    jobs = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if run.error is not None:
            record, arguments = run.record, run.record["arguments"]
            job = (record["model"], record["gpu"], record["world"], arguments["global-batch-size"], arguments["seq-length"])
            jobs[job][json.dumps(arguments, sort_keys=True)].append(run)
    counts = collections.Counter()
    wrong = []
    for job, lists in jobs.items():
        for pair in itertools.combinations(lists.values(), 2):
            one, other = (statistics.median(run.record["seconds"] for run in each) for each in pair)
            if max(one, other) <= (1 + TOLD_APART) * min(one, other):
                continue
            predicted, predicted_other = (statistics.median(run.seconds for run in each) for each in pair)
            first, second = (each[0].record["arguments"] for each in pair)
            what = "layouts" if any(first.get(name) != second.get(name) for name in LAYOUT) else "switches or precision alone"
            right = (one > other) == (predicted > predicted_other) and predicted != predicted_other
            counts[pair[0][0].kind, what, right] += 1
            if not right:
                wrong.append(" against ".join(each[0].record["id"] for each in pair))
    return counts, wrong


def order_of_pairs(runs):
    counts, wrong = ordered_pairs(runs)
    lines = ["Which of two argument lists of one job (model, GPUs, batch, sequence) takes longer: every two whose measured times differ by more than",
             f"{100 * TOLD_APART:.0f} %. A list that was measured with several releases counts once, by its median.", "",
             "| pairs that differ in | n | ordered as measured |", "|---|---:|---:|"]
    for kind, what in sorted({key[:2] for key in counts}):
        right, false = counts[kind, what, True], counts[kind, what, False]
        lines.append(f"| {what}, {kind} | {right + false} | {right} |")
    return lines + ([] if not wrong else ["", "The others:", "", *(f"- {pair}" for pair in wrong)])


def fits_of(runs):
    lines = without_room(runs)
    return ["All of them are said to fit.", ""] if not lines else ["These are said not to fit, although they ran:", "", *lines, ""]


def section(runs):
    whole = [run for run in runs if run.whole]
    return ["## Today's recipes", "",
            "Published runs of 2025 and 2026 with all their arguments, apart from the figures above. *Fits*: the share of layouts that are said to fit the card;",
            "all of them ran. Equal arguments differ by 3.6 % (median) from release to release of the software; whoever knows the layout and not",
            "the switches errs by 6.6 %. Runs that ask for what is not computed (JSON: `not_computed`) count too; without them:", "",
            *table(whole, lambda run: "all parts computed", "models"), "",
            *table(within_limits(runs), lambda run: "no FSDP, offloading or Muon", "models that a test holds to limits"), "",
            *fits_of(within_limits(runs)),
            *table(runs, lambda run: run.record["gpu"], "all runs by GPU"), "",
            *table(runs, lambda run: run.record["precision"], "by precision"), "",
            *table(runs, lambda run: run.record["release"], "by release"), "",
            *regrets(runs), "", *order_of_pairs(runs), ""]
