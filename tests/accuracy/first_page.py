"""The lines of README.md that say why to believe mgplan: its errors beside those of other ways to answer, over the same published runs."""

import re
import statistics

import blind
import megatron_estimate

BEGIN, END = "<!-- written by tests/accuracy/score MGPLAN --write -->\n", "<!-- end -->\n"
# A source of runs that a published tool predicted -> the tool.
TOOLS = {"korthikanti22/calculon": "Calculon", "simumax-b200": "SimuMax", "simumax-b200 (experts)": "SimuMax"}


def percent(errors):
    return f"{100 * statistics.fmean(map(abs, errors)):.1f} %"


def beside(others, ours):
    """Another's error and ours on the same runs."""
    return f"{percent(others)} (mgplan on the same {len(ours)} runs: {percent(ours)})" if ours else "no prediction"


def constant(rows):
    """Errors of one utilisation for all runs: the one that suits these runs best."""
    measured = [row.mfu * row.predicted["time"] / row.measured["time"] for row in rows]
    utilisation = statistics.median(measured)
    return utilisation, [each / utilisation - 1 for each in measured]


def blind_errors(unseen):
    """Errors of the frozen predictions of runs that nobody had tuned for."""
    return [unseen.frozen[record["id"]]["seconds"] / record["seconds"] - 1 for record in unseen.records
            if record.get("counts_time") and record.get("seconds") and "refused" not in unseen.frozen[record["id"]]]


def comparison(rows, unseen):
    """A table in Markdown. `rows` are those of `score`, of which the 16-bit ones count; `unseen`: blind.Records."""
    rows = [row for row in rows if row.sixteen_bit]
    timed, weighed = [row for row in rows if row.measured["time"]], [row for row in rows if row.measured["memory"]]
    lines = ["| tool | step time: mean error | memory: mean error |", "|---|---|---|",
             f"| **mgplan** | **{percent([r.error('time') for r in timed])}** ({len(timed)} runs) | "
             f"**{percent([r.error('memory') for r in weighed])}** ({len(weighed)} runs) |"]
    errors = blind_errors(unseen)
    lines.append(f"| **mgplan**, runs predicted before anybody used them | **{percent(errors)}** ({len(errors)} runs, all precisions; "
                 f"bias {100 * statistics.fmean(errors):+.1f} %) | |")
    estimated = [(megatron_estimate.run_bytes(row.record), row) for row in weighed]
    estimated = [(bytes_ / row.measured["memory"] - 1, row.error("memory")) for bytes_, row in estimated if bytes_ is not None]
    lines.append(f"| Megatron-LM's own estimate | no prediction | {beside(*zip(*estimated))} |")
    for tool in sorted(set(TOOLS.values())):
        cells = []
        for what in ("time", "memory"):
            pairs = [(row.peer_error(what), row.error(what)) for row in rows if TOOLS.get(row.source) == tool and row.peer_error(what) is not None]
            cells.append(beside(*zip(*pairs)) if pairs else "no prediction published")
        lines.append(f"| {tool}, as published | {cells[0]} | {cells[1]} |")
    utilisation, errors = constant(timed)
    lines.append(f"| fixed {100 * utilisation:.0f} % MFU (best constant, chosen afterwards) | {percent(errors)} ({len(timed)} runs) | |")
    return "\n".join(lines) + "\n"


def rewritten(page, rows, unseen=None):
    """`page` with the table of today; unchanged where it has no place for one."""
    return re.sub(f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}{comparison(rows, unseen or blind.Records())}{END}", page)
