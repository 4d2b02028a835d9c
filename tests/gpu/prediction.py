"""The parts of tests/gpu/run's command prediction."""

import functools
import json
from pathlib import Path

import bundle as bundles
import outcomes
from part import Part, Verdict, ended, read_json

TOLERANCE = 10  # percent of the measured time
MISSED = 5  # exit code of `mgplan verify` for a prediction beyond its tolerance


def cluster_of(runner):
    """The cluster file by which this card's ranks are judged, as a path, and what is to be said of it; (None, why) without one."""
    if "cluster" in runner.results:
        file = Path(runner.scratch.name) / "cluster.json"
        file.write_text(json.dumps(runner.results["cluster"]), encoding="utf-8")
        made = runner.results.get("cluster_of", {})
        if made.get("sources") == runner.results["bundle"]["sources"]:
            return file, ""
        commit, day = made.get("commit") or "unknown", made.get("at", "")[:10] or "unknown day"
        return file, f"; by a cluster file that other sources calibrated (commit {commit}, {day})"
    preset = outcomes.measured_cluster(runner.results["gpu"])
    if preset.exists():
        return preset, f"; by the tree's {preset.name}, which other sources may have calibrated"
    return None, "there is no cluster file of this card (the part calibration of the command speed makes one)"


def judge_rank(code, output, seconds, data, note):
    time = data["time"]
    summary = (f"predicted {1e3 * time['predicted_seconds']:.2f} ms, measured {1e3 * time['measured_seconds']:.2f} ms, "
               f"error {100 * time['error']:+.1f} %{note}")
    if not data["as_predicted"]:
        return Verdict(f"bytes or traffic are not as predicted; {summary}", data=data, output=output)
    if not time["judged"]:
        return Verdict(f"the time was not judged: {time['why_not_judged']}; {summary}", data=data, output=output)
    return Verdict(summary if code == MISSED else ended(code, output, seconds), summary, data, output)


def verified(build, plan, words):
    def work(runner, seconds):
        cluster, note = cluster_of(runner)
        file = Path(runner.scratch.name) / "verified.json"
        file.unlink(missing_ok=True)
        # Without a cluster file by the plan's own: bytes are judged and seconds measured, and both are kept.
        code, output = runner.process([build / "bin/gpu_all", "mgplan", "verify", build / "plans" / plan["file"], "--device", "cuda", "--steps", 8,
                                       *(["--cluster", cluster] if cluster else []), "--tolerance", TOLERANCE, "--format", "json", "--output", file,
                                       *words], seconds)
        data = read_json(file)
        if data is None:
            return Verdict(ended(code, output, seconds) or "it wrote no report", output=output)
        data["plan"] = plan
        if cluster is None:
            data["time"]["why_not_judged"], note = note, ""
        return judge_rank(code, output, seconds, data, note)
    return work


@functools.lru_cache(maxsize=None)
def plans_of(build):
    """[{"file", "rank" (-1: all of them), "name", "first" (of a borrowed card)}]: what pack made. Raises Refused where it made none."""
    bundles.read_bundle(build)  # without one there are no plans either, and it says so
    listed = [plan for plan in read_json(build / "plans" / "plans.json") or [] if not plan["file"].startswith("parity-")]
    if not listed:
        raise bundles.Refused(f"{build}/plans/plans.json names no plan to judge; make the bundle again with tests/gpu/pack")
    return listed


def rank_part(plan):
    return f"rank_{plan['name']}"


def prediction(build):
    parts = {}
    for plan in plans_of(build):
        if plan["rank"] >= 0:
            parts[rank_part(plan)] = Part(80, verified(build, plan, ["--rank", plan["rank"]]), timed=True)
        else:
            for scope in ("none", "layer", "full_iteration"):
                parts[f"graphs_{plan['name']}_{scope}"] = Part(60, verified(build, plan, ["--memory", "arena", "--cuda-graphs", scope]), timed=True)
    return parts
