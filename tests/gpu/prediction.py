"""The parts of tests/gpu/run's command prediction."""

import functools
import json
from pathlib import Path

import bundle as bundles
from part import Part, Verdict, ended, read_json

TOLERANCE = 10  # percent of the measured time
MISSED = 5  # exit code of `mgplan verify` for a prediction beyond its tolerance


def verified(build, plan, words):
    def work(runner, seconds):
        cluster = Path(runner.scratch.name) / "cluster.json"
        if "cluster" not in runner.results:
            return Verdict("there is no cluster file of this card: run the command speed first, and name its results.json with --earlier")
        cluster.write_text(json.dumps(runner.results["cluster"]), encoding="utf-8")
        file = Path(runner.scratch.name) / "verified.json"
        file.unlink(missing_ok=True)
        code, output = runner.process([build / "bin/gpu_all", "mgplan", "verify", build / "plans" / plan["file"], "--device", "cuda",
                                       "--steps", 8, "--cluster", cluster, "--tolerance", TOLERANCE, "--format", "json", "--output", file, *words], seconds)
        data = read_json(file)
        if data is None:
            return Verdict(ended(code, output, seconds) or "it wrote no report", output=output)
        time = data["time"]
        data["plan"] = plan
        summary = (f"predicted {1e3 * time['predicted_seconds']:.2f} ms, measured {1e3 * time['measured_seconds']:.2f} ms, "
                   f"error {100 * time['error']:+.1f} %")
        if not data["as_predicted"]:
            return Verdict(f"bytes or traffic are not as predicted; {summary}", data=data, output=output)
        if not time["judged"]:
            return Verdict(f"the time was not judged: {time['why_not_judged']}", data=data, output=output)
        if code == MISSED:
            return Verdict(summary, data=data, output=output)
        return Verdict(ended(code, output, seconds), summary, data, output)
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
            parts[rank_part(plan)] = Part(80, verified(build, plan, ["--rank", plan["rank"]]))
        else:
            for scope in ("none", "layer", "full_iteration"):
                parts[f"graphs_{plan['name']}_{scope}"] = Part(60, verified(build, plan, ["--memory", "arena", "--cuda-graphs", scope]))
    return parts
