#!/usr/bin/env python3
"""Runs that mgplan predicted before anybody used them: their frozen predictions, beside today's.

    blind.py check            every record has a prediction frozen before it was added; exit 1 and a line for each that has not
    blind.py freeze MGPLAN    predicts the records that have none, with the binary of the commit that is checked out
    blind.py score MGPLAN     prints the tables of docs/accuracy.md; --min-sign, --max-median: limits of the pairs

blind/README.md says what the files hold. A prediction counts as blind because the history says so: its commit is an ancestor of the one
that added the record.
"""

import argparse
import collections
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import recipes

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "blind"
ROOT = HERE.parent.parent
SUMMARY = ROOT / "configs" / "accuracy" / "blind.json"  # in the binary, which says it under its tables
OVER_LIMIT, REFUSED, CANNOT_SAY = 3, 2, 6  # exit codes: does not fit, refused, and of a recipe with settings that mgplan does not know
FEWEST = 10  # blind records that a family needs for a figure
LARGE = 0.05  # change of a pair that counts as large
SAME = 0.015  # changes below this are none


def read_lines(path):
    """The objects of a file of lines; none of a file that is not there."""
    return [] if not path.exists() else [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


class Records:
    def __init__(self, folder=FOLDER):
        self.folder = folder
        self.records = read_lines(folder / "records.jsonl")
        self.frozen = {line["id"]: line for line in read_lines(folder / "frozen.jsonl")}
        self.tuned = {line["id"]: line["constant"] for line in read_lines(folder / "tuned.jsonl")}
        self.pairs = read_lines(folder / "pairs.jsonl")
        self.by_id = {record["id"]: record for record in self.records}


def git(*words):
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(FOLDER), *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def added_by(path):
    """The commit that last wrote each line, in order; None without a history."""
    blame = git("blame", "--line-porcelain", "--", str(path))
    if blame is None or git("rev-parse", "--is-shallow-repository") != "false\n":
        return None
    return [line.split(" ")[0] for line in blame.splitlines() if len(line.split(" ")[0]) == 40 and line.split(" ")[1:2] and line.split(" ")[1].isdigit()]


def is_ancestor(one, other):
    return git("merge-base", "--is-ancestor", one, other) is not None


def problems(all_of, commits=None, ancestor=is_ancestor):
    """A line for each record that is not blind by its history. `commits`: what added each record; None: the history is not looked at."""
    found, known = [], {}
    for number, record in enumerate(all_of.records):
        name, frozen = record["id"], all_of.frozen.get(record["id"])
        if frozen is None:
            found.append(f"{name}: no frozen prediction; tests/accuracy/blind.py freeze MGPLAN makes it")
            continue
        if commits is None:
            continue
        added = commits[number] if set(commits[number]) != {"0"} else "HEAD"  # zeros: not committed yet
        pair = (frozen["commit"], added)
        if pair not in known:
            known[pair] = ancestor(*pair)
        if not known[pair]:
            found.append(f"{name}: its prediction is of commit {frozen['commit']}, which is no ancestor of {added[:8]}, which added the record")
    if len(all_of.by_id) != len(all_of.records):
        found.append("two records have one id")
    found += [f"{name}: frozen, and no record has this id" for name in all_of.frozen if name not in all_of.by_id]
    found += [f"{name}: tuned, and no record has this id" for name in all_of.tuned if name not in all_of.by_id]
    for pair in all_of.pairs:
        found += [f"pair {pair['name']}: no record has the id {pair[side]}" for side in "ab" if pair[side] not in all_of.by_id]
    return found


def simulate_words(record, path):
    """The command that predicts `record`, after mgplan; writes its argument file to `path`."""
    path.write_text(recipes.argument_file(record["arguments"]), encoding="utf-8")
    return ["simulate", "--megatron-args", str(path), "--world", str(record["world"]), "--cluster", record["cluster"], "--software", record["software"]]


def time_and_fit(predicted):
    return {"seconds": predicted["iteration_seconds"], "interval_seconds": predicted["interval_seconds"], "fits": predicted["memory"]["missing_bytes"] == 0}


def predict(mgplan, records, words_of=simulate_words, figures_of=time_and_fit):
    """{id: figures_of(what is predicted)}, or {id: {refused: true}} where mgplan refuses the run by a rule; raises RuntimeError where it ends
    otherwise."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        def simulate(numbered):
            number, record = numbered
            words = words_of(record, Path(folder) / f"{number}.args")
            done = subprocess.run([mgplan, words[0], "--format", "json", *words[1:]], capture_output=True, text=True, timeout=300)
            if done.returncode == REFUSED:
                return {"refused": True}
            if done.returncode not in (0, OVER_LIMIT, CANNOT_SAY):
                raise RuntimeError(f"{record['id']}: exit {done.returncode}: {done.stderr.strip()[:300]}")
            said = json.loads(done.stdout)
            return figures_of(said.get("predicted", said))
        return dict(zip((record["id"] for record in records), pool.map(simulate, enumerate(records))))


def freeze(mgplan, all_of, words_of=simulate_words, figures_of=time_and_fit):
    new = [record for record in all_of.records if record["id"] not in all_of.frozen]
    if not new:
        return "every record has a prediction"
    own = str(all_of.folder.relative_to(ROOT))
    changed = [line for line in (git("status", "--porcelain", "--untracked-files=no") or "").splitlines() if own not in line]
    commit = (git("rev-parse", "--short=8", "HEAD") or "").strip()
    if changed or not commit:
        raise RuntimeError("a prediction is frozen at a commit; commit or stash the changes first: " + ", ".join(line[3:] for line in changed[:5]))
    predicted = predict(mgplan, new, words_of, figures_of)
    with open(all_of.folder / "frozen.jsonl", "a", encoding="utf-8") as out:
        for name, values in predicted.items():
            out.write(json.dumps({"id": name, "commit": commit, **values}) + "\n")
    return f"froze {len(predicted)} predictions of commit {commit}"


def percent(value, signed=False):
    return f"{100 * value:{'+' if signed else ''}.1f}"


def row(name, records, predictions):
    """Cells of errors of `records` under `predictions`; none where fewer than FEWEST count."""
    refused = sum("refused" in predictions[record["id"]] for record in records)
    records = [record for record in records if "refused" not in predictions[record["id"]]]
    timed = [record for record in records if record.get("counts_time") and record.get("seconds")]
    fits = [predictions[record["id"]]["fits"] for record in records if record.get("counts_fit")]
    if len(timed) < FEWEST:
        return f"| {name} | {len(timed)} | no blind runs | | | | {refused or ''} |"
    errors = [predictions[record["id"]]["seconds"] / record["seconds"] - 1 for record in timed]
    inside = [low <= record["seconds"] <= high for record in timed for low, high in [predictions[record["id"]]["interval_seconds"]]]
    return (f"| {name} | {len(timed)} | {percent(statistics.fmean(map(abs, errors)))} | {percent(statistics.fmean(errors), signed=True)} | "
            f"{100 * statistics.fmean(inside):.0f} | {f'{100 * statistics.fmean(fits):.0f} of {len(fits)}' if fits else ''} | {refused or ''} |")


def vendor(record):
    return "AMD" if record["gpu"].startswith("MI") else "NVIDIA"


def table(records, predictions):
    head = ["| runs | n | mean error, % | bias, % | inside the interval, % | fit, % | refused |", "|---|---:|---:|---:|---:|---:|---:|"]
    lines = [row("all", records, predictions)]
    for key in (vendor, *(lambda record, field=field: record[field] for field in ("family", "gpu", "precision"))):
        groups = collections.defaultdict(list)
        for record in records:
            groups[key(record)].append(record)
        lines += [row(name, groups[name], predictions) for name in sorted(groups)]
    return head + lines


def groups(all_of):
    """Errors of the frozen predictions by family, and by family and GPU, where there are enough: what a command says of its own accuracy."""
    found = collections.defaultdict(list)
    for record in all_of.records:
        prediction = all_of.frozen[record["id"]]
        if record.get("counts_time") and record.get("seconds") and "refused" not in prediction:
            for gpu in ("", record["gpu"].split("-")[0]):
                found[record["family"], gpu].append(prediction["seconds"] / record["seconds"] - 1)
    return [{"family": family, "gpu": gpu, "runs": len(errors), "mean_error": round(statistics.fmean(map(abs, errors)), 4),
             "bias": round(statistics.fmean(errors), 4)} for (family, gpu), errors in sorted(found.items()) if len(errors) >= FEWEST]


def groups_text(all_of):
    return "[\n" + ",\n".join("  " + json.dumps(group) for group in groups(all_of)) + "\n]\n"


KINDS = (("GPU", lambda name: name == "gpu"), ("release", lambda name: name == "software"),
         ("precision", lambda name: name == "precision" or "fp8" in name or "fp4" in name or name in ("reuse-grad-buf-for-mxfp8-param-ag",)),
         ("dispatcher", lambda name: "dispatcher" in name or "deepep" in name or name in ("moe-hybridep-num-sms",)),
         ("expert parallelism", lambda name: name.startswith("expert-")),
         ("overlap of experts", lambda name: name in ("overlap-moe-expert-parallel-comm", "delay-wgrad-compute", "moe-shared-expert-overlap")),
         ("micro-batch", lambda name: name == "micro-batch-size"), ("recompute", lambda name: name.startswith("recompute") or name == "moe-layer-recompute"),
         ("CUDA graphs", lambda name: "cuda-graph" in name or name == "te-rng-tracker"),
         ("layout", lambda name: name.endswith("parallel-size") or "virtual" in name or "pipeline" in name or name == "sequence-parallel"))


def kind_of_change(one, other):
    """The kind of the switches that differ; "several kinds" where there is more than one, "other switches" where it has no name here."""
    facts = [{**record["arguments"], "gpu": record["gpu"], "software": record["software"], "precision": record["precision"]} for record in (one, other)]
    differing = [name for name in {*facts[0], *facts[1]} if facts[0].get(name) != facts[1].get(name)]
    kinds = {next((kind for kind, holds in KINDS if holds(name)), "other switches") for name in differing}
    if "GPU" in kinds:
        return "GPU"
    if len(kinds) > 1:
        kinds.discard("other switches")
    return kinds.pop() if len(kinds) == 1 else "several kinds" if kinds else "nothing"


class Change:
    def __init__(self, kind, measured, predicted):
        self.kind, self.measured, self.predicted = kind, measured, predicted
        self.large = abs(measured) >= LARGE
        self.right = (measured > 0) == (predicted > 0) or (abs(measured) < SAME and abs(predicted) < SAME)
        self.gap = abs(predicted - measured)


def changes(all_of, predictions):
    found = []
    for pair in all_of.pairs:
        one, other = (all_of.by_id[pair[side]] for side in "ab")
        if one.get("seconds") and other.get("seconds") and not any("refused" in predictions[record["id"]] for record in (one, other)):
            found.append(Change(kind_of_change(one, other), other["seconds"] / one["seconds"] - 1,
                                predictions[other["id"]]["seconds"] / predictions[one["id"]]["seconds"] - 1))
    return found


def pairs_row(name, some):
    large = [change for change in some if change.large]
    ratio = f"{statistics.median(change.predicted / change.measured for change in large):.2f}" if large else ""
    return (f"| {name} | {len(some)} | {sum(change.right for change in some)} | {sum(change.right for change in large)} of {len(large)} | "
            f"{percent(statistics.median(change.gap for change in some))} | {percent(statistics.fmean(change.gap for change in some))} | {ratio} |")


def pairs_table(some):
    lines = ["| what differs | pairs | sign right | of changes of 5 % and more | median gap, points | mean gap | predicted / measured, median |",
             "|---|---:|---:|---:|---:|---:|---:|", pairs_row("all", some)]
    return lines + [pairs_row(kind, [change for change in some if change.kind == kind]) for kind in sorted({change.kind for change in some})]


def section(all_of, today):
    """Lines of Markdown. `today`: what the present binary predicts."""
    blind = [record for record in all_of.records if record["id"] not in all_of.tuned]
    tuned = [record for record in all_of.records if record["id"] in all_of.tuned]
    commits = sorted({all_of.frozen[record["id"]]["commit"] for record in all_of.records})
    lines = ["## Runs that nobody had tuned for", "",
             f"{len(all_of.records)} published runs that were predicted before they were used (tests/accuracy/blind): the predictions were frozen at",
             f"commit {', '.join(commits)}, and the records were added later. Expect these errors of a run of your own.", "",
             *table(all_of.records, all_of.frozen), "",
             "The same runs, predicted by the commit above" + (f", without {len(tuned)} that chose a constant since:" if tuned else "; none of them has chosen a constant of the time:"), "",
             *table(blind, today), ""]
    if tuned:
        lines += ["Runs that chose a constant since they were added, by the commit above:", "", *table(tuned, today), ""]
    some = changes(all_of, today)
    return lines if not some else lines + ["Pairs of these runs that differ in one switch: how the step changes, as measured and as predicted by the commit above.", "",
                    *pairs_table(some), ""]


def beyond(some, least_sign, most_median):
    """Prints the pairs' figures beside their limits; True if one is missed."""
    large = [change.right for change in some if change.large]
    sign, median = 100 * statistics.fmean(large), 100 * statistics.median(change.gap for change in some)
    print(f"pairs: {sign:.0f} % of {len(large)} large changes have the right sign; median gap {median:.1f} points")
    return (least_sign is not None and sign < least_sign) or (most_median is not None and median > most_median)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("verb", choices=("check", "freeze", "score"))
    ask.add_argument("mgplan", nargs="?")
    ask.add_argument("--min-sign", type=float)
    ask.add_argument("--max-median", type=float)
    said = ask.parse_args()
    if (said.verb == "check") != (said.mgplan is None):
        ask.error("freeze and score take the binary, check takes none")
    all_of = Records()
    if said.verb == "freeze":
        print(freeze(said.mgplan, all_of))
        SUMMARY.write_text(groups_text(Records()), encoding="utf-8")
        return 0
    found = problems(all_of, added_by(FOLDER / "records.jsonl"))
    if not found and SUMMARY.read_text(encoding="utf-8") != groups_text(all_of):
        found.append(f"{SUMMARY.relative_to(ROOT)} differs from the records; run tests/accuracy/blind.py freeze MGPLAN")
    for line in found:
        print(line, file=sys.stderr)
    if said.verb == "check" or found:
        return 1 if found else 0
    today = predict(said.mgplan, all_of.records)
    print("\n".join(section(all_of, today)))
    return 1 if beyond(changes(all_of, today), said.min_sign, said.max_median) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"blind.py: {error}")
