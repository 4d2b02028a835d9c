#!/usr/bin/env python3
"""Conditions in which published runs were slower than predicted: what `worst` in a table assumes.

    adverse.py fit MGPLAN     writes configs/accuracy/adverse.json and the table of docs/how-sure.md
    adverse.py check MGPLAN   exit 1 where a fit would change a condition by more than MOST

For each run on which a condition has an effect, the value of that condition with which the prediction equals the measured time, as if nothing
else were off: blind runs, and today's recipes. A condition is then the value that one run in five exceeds; routing, of which few runs are
published with the router's own choices, is their median.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blind
import recipes

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILE = ROOT / "configs" / "accuracy" / "adverse.json"
PAGE = ROOT / "docs" / "how-sure.md"
MOST = 0.1
STEPS = 9  # halvings of an interval


class Condition:
    """`usual`: the value that predictions assume; `tried`: a worse one, which must make a run slower by `share` for it to count."""

    def __init__(self, name, usual, tried, share, best, worst, quantile, counts=lambda record: True):
        self.name, self.usual, self.tried, self.share = name, usual, tried, share
        self.best, self.worst, self.quantile, self.counts = best, worst, quantile, counts


def forced(record):
    return record.get("routing") != "natural"


CONDITIONS = (
    Condition("network", 1, 0.5, 0.10, 3, 0.1, 0.2, forced),
    Condition("host", 1, 1.5, 0.05, 0.3, 5, 0.8, forced),
    Condition("routing", 0, 0.3, 0.02, 0, 2, 0.5, lambda record: not forced(record)),
)


def value_that_explains(seconds_at, condition, measured):
    """The value at which `seconds_at` says the measured time, by halving the interval; its ends where that is outside. The condition is
    worse, and the time longer, the nearer the value is to `worst`."""
    good, bad = condition.best, condition.worst
    if seconds_at(good) >= measured:
        return good
    if seconds_at(bad) <= measured:
        return bad
    for _ in range(STEPS):
        middle = (good + bad) / 2
        if seconds_at(middle) < measured:
            good = middle
        else:
            bad = middle
    return (good + bad) / 2


def quantile(values, share):
    """By linear interpolation between the sorted values."""
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    return values[low] + (place - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def simulate(mgplan, path, record, conditions):
    """Adverse and usual seconds; None where mgplan refuses the run."""
    done = subprocess.run([mgplan, "simulate", "--megatron-args", path, "--world", str(record["world"]), "--cluster", record["cluster"],
                           "--software", record["software"], "--format", "json", "--adverse", conditions], capture_output=True, text=True, timeout=300)
    if done.returncode == blind.REFUSED:
        return None
    if done.returncode not in (0, blind.OVER_LIMIT):
        raise RuntimeError(f"{record['id']}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    predicted = json.loads(done.stdout)["predicted"]
    return predicted["adverse_seconds"], predicted["iteration_seconds"]


def records():
    every = [*blind.Records().records, *recipes.load(HERE / "data")]
    return [record for record in every if record.get("seconds") and record.get("counts_time", True)]


def values_of(mgplan, record, folder):
    """{condition: value that explains the run}"""
    path = Path(folder) / f"{record['id']}.args".replace("/", "-")
    path.write_text(recipes.argument_file(record["arguments"]), encoding="utf-8")

    def text(**changed):
        return ",".join(f"{one.name}={changed.get(one.name, one.usual)}" for one in CONDITIONS)

    found = {}
    for one in CONDITIONS:
        if not one.counts(record):
            continue
        tried = simulate(mgplan, path, record, text(**{one.name: one.tried}))
        if tried is None:
            return {}
        worse, usual = tried
        if worse < usual * (1 + one.share):
            continue
        # The adverse time is never below the usual one; a run that was faster than predicted had at least the usual conditions.
        found[one.name] = value_that_explains(lambda value: simulate(mgplan, path, record, text(**{one.name: value}))[0],
                                              Condition(one.name, one.usual, one.tried, one.share, one.usual, one.worst, one.quantile),
                                              record["seconds"])
    return found


def fit(mgplan):
    """{condition: {"value", "runs"}}"""
    found = {one.name: [] for one in CONDITIONS}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for values in pool.map(lambda record: values_of(mgplan, record, folder), records()):
            for name, value in values.items():
                found[name].append(value)
    return {one.name: {"value": round(quantile(found[one.name], one.quantile), 2), "runs": len(found[one.name])} for one in CONDITIONS}, found


ROWS = {"network": "bandwidth between nodes, of the predicted one (latencies grow by the inverse) | {value} | {runs} runs that half the bandwidth makes 10 % slower",
        "host": "time to launch a kernel, of the predicted one | {value} | {runs} runs that half as much again makes 5 % slower",
        "routing": "routing: exponent of Zipf's law by which tokens spread over experts | {value} | the median of {runs} runs whose router chose, soon after random weights"}


def table(fitted):
    """The table's rows on the page."""
    return "".join(f"| {ROWS[one.name].format(**fitted[one.name])} |\n" for one in CONDITIONS)


def with_table(page, rows):
    """The page with the rows in place of those under the header "condition"."""
    begin = page.index("|---|---|---|\n", page.index("| condition | value | from |")) + len("|---|---|---|\n")
    return page[:begin] + rows + page[page.index("\n\n", begin) + 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "check"))
    parser.add_argument("mgplan")
    asked = parser.parse_args()
    fitted, found = fit(asked.mgplan)
    for one in CONDITIONS:
        values = found[one.name]
        print(f"{one.name}: {fitted[one.name]['value']} on {len(values)} runs; quintiles {[round(quantile(values, q), 2) for q in (0, .2, .4, .5, .6, .8, 1)]}")
    if asked.what == "fit":
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(fitted)), encoding="utf-8")
        FILE.write_text("{\n" + ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in fitted.items()) + "\n}\n", encoding="utf-8")
        return 0
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    moved = [f"{name}: {stored[name]['value']} in {FILE.name}, {fitted[name]['value']} fitted; run adverse.py fit MGPLAN"
             for name in fitted if abs(fitted[name]["value"] - stored[name]["value"]) > MOST]
    if table(stored) not in PAGE.read_text(encoding="utf-8"):
        moved.append(f"{PAGE.name} states other conditions than {FILE.name}; run adverse.py fit MGPLAN")
    print("\n".join(moved), end="\n" if moved else "")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
