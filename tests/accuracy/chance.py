"""What errors of a given size cost a ranking by chance: the part of docs/accuracy.md that the regret is to be read by.

For `score`. What chance costs depends on the predictions by their mean error alone: the runs' measured times say how near layouts lie.
"""

import copy
import math
import random
import statistics

ERRORS, DRAWS = (0.02, 0.03, 0.04, 0.06), 200
FITTED = "vtrain-single"
# From the fits' table in docs/measurements/2026-11-23-vtrain-fits.md; chance_test.py holds them to it.
FITS = "mean errors of 5.6 to 6.4 %; their regret is 1.6 to 5.0 % on average and 12.3 to 28.7 % at most"


def off_by_chance(rows, error, draw):
    """The rows, predicted as measured but for errors of this mean size: normal in the logarithm, the same ones for the same draw."""
    source = random.Random(draw)
    deviation = error * math.sqrt(math.pi / 2)  # of a normal distribution whose absolute value has this mean
    found = []
    for row in rows:
        found.append(copy.copy(row))
        found[-1].predicted = {"time": row.measured["time"] * math.exp(source.gauss(0, deviation))}
    return found


def compared(rows):
    """The rows that some other layout is compared with."""
    layouts = {}
    timed = [row for row in rows if row.comparison and row.measured["time"]]
    for row in timed:
        layouts.setdefault((row.source, row.comparison), set()).add(row.layout)
    return [row for row in timed if len(layouts[row.source, row.comparison]) > 1]


def costs(rows, regrets):
    """Mean and largest regret over all groups."""
    every = [group[0] for groups in regrets(rows).values() for group in groups]
    return statistics.fmean(every), max(every)


def beside_fits(rows, regrets):
    """mgplan beside simple models whose constants were fitted, on the runs of both."""
    of_source = [row for row in rows if row.source == FITTED and row.measured["time"]]
    without_stages = [row for row in of_source if row.record["arguments"].get("pipeline-model-parallel-size", 1) == 1]
    groups = compared(without_stages)
    if not groups:
        return []
    own = costs(groups, regrets)
    count = sum(map(len, regrets(groups).values()))
    size = statistics.fmean(abs(row.error("time")) for row in without_stages)
    return ["", f"Constants of simple models were fitted to the times of {len(without_stages)} of the {len(of_source)} runs of {FITTED}, "
            "those without pipeline stages,", "for small errors, not for small regret (docs/measurements/2026-11-23-vtrain-fits.md):",
            f"{FITS} over the {count} groups that",
            f"these runs have of more than one layout. mgplan's predictions of the same runs are off by {100 * size:.1f} % on average;",
            f"their regret over the same groups is {100 * own[0]:.1f} % on average and {100 * own[1]:.1f} % at most."]


def section(rows, regrets):
    """Lines of Markdown; `regrets(rows)` is score's."""
    remark = beside_fits(rows, regrets)
    rows = compared(rows)
    if not rows:
        return []
    size = statistics.fmean(abs(row.error("time")) for row in rows)
    own = costs(rows, regrets)
    lines = [f"What an error costs by chance: the {len(rows)} runs of these groups, each predicted as it was measured but for an error drawn at random",
             f"(normal in the logarithm). Median of {DRAWS} draws, and between which values eight of ten draws lie:", "",
             "| mean error | mean regret | 10 to 90 % of draws | largest regret | 10 to 90 % of draws |", "|---:|---:|---:|---:|---:|"]
    for error in (*ERRORS, size):
        cells = []
        for values in zip(*(costs(off_by_chance(rows, error, draw), regrets) for draw in range(DRAWS))):
            tenths = statistics.quantiles(values, n=10)
            cells.append(f"{100 * statistics.median(values):.2f} | {100 * tenths[0]:.2f} to {100 * tenths[-1]:.2f}")
        lines.append(f"| {100 * error:.1f} | {' | '.join(cells)} |")
    return [*lines, "", f"The predictions of these runs are off by {100 * size:.1f} % on average; their regret is {100 * own[0]:.2f} % on average and "
            f"{100 * own[1]:.2f} % at most.", *remark]
