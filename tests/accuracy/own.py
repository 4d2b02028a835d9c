"""Ranks of mgplan's own runs on GPUs, as tests/gpu/take wrote them down: predicted beside measured on the day of the run.

One rank of a plan ran alone (`mgplan verify --rank`), so these are times of what it computes, without communication."""

import json
import statistics

FIELDS = ("source_key", "id", "source", "gpu", "plan", "rank", "seconds", "predicted_seconds", "bytes", "predicted_bytes")


def load(folder):
    """Records of own-*.jsonl. Raises ValueError for a line that is none."""
    records = []
    for path in sorted(folder.glob("own-*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                missing = [field for field in FIELDS if field not in record]
            except ValueError as problem:
                raise ValueError(f"{path.name}, line {number}: no JSON ({problem})") from None
            if missing:
                raise ValueError(f"{path.name}, line {number}: {missing[0]} is missing; let tests/gpu/take write it again")
            records.append(record)
    return records


def section(records):
    """The lines of docs/accuracy.md; none without records."""
    if not records:
        return []
    lines = ["## mgplan's own runs", "",
             "Ranks of plans that mgplan itself ran alone on a GPU, communication left out on both sides (docs/calibration.md, \"`verify --rank`\"):",
             "predicted with the cluster file calibrated on that card on that day, by the commit that the page named there names.", "",
             "| source | n | time: mean | largest | bias | ranks whose peak bytes differ |", "|---|---:|---:|---:|---:|---:|"]
    for source in sorted({record["source_key"] for record in records}):
        some = [record for record in records if record["source_key"] == source]
        errors = [record["predicted_seconds"] / record["seconds"] - 1 for record in some]
        off = sum(record["bytes"] != record["predicted_bytes"] for record in some)
        lines.append(f"| {source} | {len(some)} | {100 * statistics.fmean(map(abs, errors)):.2f} | {100 * max(map(abs, errors)):.2f} | "
                     f"{100 * statistics.fmean(errors):+.2f} | {off} |")
    lines += ["", "| plan | rank | GPU | measured s | predicted s | error | from |", "|---|---:|---|---:|---:|---:|---|"]
    for record in records:
        error = record["predicted_seconds"] / record["seconds"] - 1
        lines.append(f"| {record['plan']} | {record['rank']} | {record['gpu']} | {record['seconds']:.4f} | {record['predicted_seconds']:.4f} | "
                     f"{100 * error:+.2f} | {record['source']} |")
    return [*lines, ""]
