"""What ctest runs: exports of every preset, random commands, parameters, schedules and buffers, with few minutes of two cores."""

import sys
import time
from pathlib import Path

import bridge
import exports
import figures
import known
import legality
import oracle

PARTS = ("exports", "bridge", "commands", "parameters", "schedules", "buffers")


class Daily:
    def __init__(self, program, folder, workers, seed=1):
        self.program, self.folder, self.workers, self.seed = program, Path(folder), workers, seed
        self.rows = []

    def exports(self):
        self.rows = exports.judged(self.program, self.folder / "plans", range(3), self.seed, self.workers)
        return f"{len(self.rows)} layouts of {len({row['model'] for row in self.rows})} presets", list(exports.texts(self.rows))

    def bridge(self):
        compared, texts = bridge.judged(self.program, [row for row in self.rows if row.get("accepted")][::4], self.workers)
        return f"overrides of {compared} plans for Megatron-Bridge", texts

    def commands(self):
        rows = legality.judged(self.program, self.folder / "commands", range(300), self.workers)
        decided = [row for row in rows if row["outcome"] != "undecided"]
        agreed = sum(row["outcome"] == "agree" for row in decided)
        return f"{len(rows)} commands, {len(decided)} decided, of which {agreed} agree", [legality.text(row) for row in decided if row["outcome"] == "differ"]

    def parameters(self):
        accepted = {row["model"]: row for row in self.rows if row.get("accepted") and row["number"] == 1 and not exports.starts_another_model(row)}
        chosen = sorted(accepted)[:: max(len(accepted) // 40, 1)][:40]
        result = figures.parameters(self.program, [accepted[name] for name in chosen], self.workers)
        return f"{result['compared']} ranks of {result['models']} models", result["differences"]

    def schedules(self):
        result = figures.schedules(self.program, 80, self.seed, self.workers)
        return f"{result['compared']} schedules, every rank of them", result["differences"]

    def buffers(self):
        result = figures.buffers(self.program, self.folder / "buffers", 24, self.seed, self.workers)
        return f"{result['compared']} chunks", result["differences"]


def run(program, folder, workers):
    """Prints a line for each part and returns the exit code: 1 where something differs in a way that known_differences.json does not list."""
    daily, failed = Daily(program, folder, workers), False
    for part in PARTS:
        began = time.monotonic()
        summary, texts = getattr(daily, part)()
        wrong, counts = known.judge(part, texts)
        listed = "; ".join(f"{count} x {kind}" for kind, count in counts.items())
        print(f"{part}: {summary}, {len(texts)} differ{' (known: ' + listed + ')' if listed else ''} [{time.monotonic() - began:.0f} s]", flush=True)
        for text in wrong:
            print(f"    {text}")
        failed |= bool(wrong)
    print(f"Megatron-LM {oracle.version()}: {'FAILED' if failed else 'passed'}")
    sys.stdout.flush()
    return 1 if failed else 0
