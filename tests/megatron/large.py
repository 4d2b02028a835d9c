"""The long comparison: `run --large`. Writes its section of docs/measurements/megatron-oracle.md; options of 0 leave a part out."""

import collections
import datetime
import json
import re
import subprocess
import time
from pathlib import Path

import bridge
import exports
import figures
import known
import legality
import oracle
import train

PAGE = Path(__file__).resolve().parents[2] / "docs/measurements/megatron-oracle.md"
HEAD = """# mgplan compared with NVIDIA's own code

`tests/megatron/run --large` writes this page; [tests/megatron](../../tests/megatron/README.md) says how. Each section belongs to one release of
Megatron-LM; what a run leaves out keeps its figures, with their date and commit. "Differ" counts what neither a stand-in nor a missing GPU decides; the kinds are those of `tests/megatron/known_differences.json`,
and what matches none of them is listed by its text.
"""


def parsed_revision(*words):
    return subprocess.run(["git", "-C", str(oracle.ROOT), "rev-parse", *words], capture_output=True, text=True, check=False).stdout.strip()


def version():
    """Release of Megatron-LM, with commit and branch where it is a checkout."""
    top = parsed_revision("--show-toplevel")
    if top and Path(top).resolve() == oracle.ROOT:
        return f"Megatron-LM {oracle.version()} at {parsed_revision('--short=8', 'HEAD')[:8]} ({parsed_revision('--abbrev-ref', 'HEAD')})"
    return f"Megatron-LM {oracle.version()} (wheel of megatron-core)"


def of_mgplan(program):
    root = Path(__file__).resolve().parents[2]
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout.strip().splitlines()[0] + f" at {commit}"


def without_numbers(text):
    """A difference without what belongs to its one case, so that equal ones can be counted."""
    text = re.sub(r"^seed \d+: |^\S+ \([^)]*\): |--megatron-args: \S+: ", "", text)
    return re.sub(r"\d[\d,.]*", "N", text)[:220].replace("|", "\\|").replace("\n", " ")


def table(part, texts):
    """Rows of kinds with their counts."""
    named = known.Known(part)
    counts, reasons = collections.Counter(), {}
    for text in texts:
        entry = named.take(text)
        kind = entry["kind"] if entry else "`" + without_numbers(text).replace("`", "'") + "`"
        counts[kind] += 1
        reasons[kind] = entry["reason"] if entry else ""
    rows = [f"| {count} | {kind} | {reasons[kind]} |" for kind, count in counts.most_common()]
    return ["| number | kind | why |", "|---|---|---|", *rows, ""] if rows else []


def kept(options, part, compute):
    """Rows of a part, which are written down; with --reuse those that are there."""
    file = Path(options.folder) / f"{part}.json"
    if not (options.reuse and file.exists()):
        file.write_text(json.dumps(compute(), indent=1))
    return json.loads(file.read_text())


def in_blocks(options, items, judge, size=50):
    """Rows of judge(block) for blocks of the items; with --minutes no block begins later than that."""
    rows, until = [], time.monotonic() + 60 * (options.minutes or 1e9)
    for start in range(0, len(items), size):
        if time.monotonic() > until:
            break
        rows += judge(items[start:start + size])
    return rows


def section(options):
    """Returns the parts that this run measured, by their titles."""
    began, parts = time.monotonic(), {}
    program, folder, workers = options.mgplan, Path(options.folder), options.workers
    measured = f"{datetime.date.today()}, {of_mgplan(program)}"

    def part(title, summary, kind, texts):
        parts[title] = "\n".join([f"{measured}: {summary}", "", *table(kind, texts)]).rstrip()
        print(f"{title}: {summary} [{time.monotonic() - began:.0f} s]", flush=True)

    if options.commands:
        judge_commands(options, part)
    if options.layouts:
        layouts = range(options.layouts)
        rows = kept(options, "exports", lambda: in_blocks(options, layouts, lambda some: exports.judged(program, folder / "plans", some, options.seed, workers), 1))
        exported = [row for row in rows if row["stage"] == "exported"]
        accepted = [row for row in rows if row.get("accepted")]
        part("Exports", f"{sum(row['stage'] != 'no plan' for row in rows)} layouts of {len({row['model'] for row in rows})} presets: {len(exported)} exported by --megatron "
             f"{exports.version_of_megatron()}, {len(accepted)} of them start.", "exports",
             list(exports.texts(rows)))
        if (oracle.ROOT / "megatron/bridge").is_dir():  # of its wheel, which a checkout of Megatron-LM does not hold
            compared, texts = bridge.judged(program, accepted, workers)
            part("Overrides of Megatron-Bridge", f"{compared} of these plans, loaded by the ConfigContainer of megatron-bridge, {len(texts)} differ.", "bridge", texts)
        result = figures.parameters(program, accepted, workers)
        part("Gradient bytes", f"{result['compared']} ranks of {result['models']} models compared, {len(result['differences'])} differ. Left out, since "
             f"their exports name fields that no flag carries: {', '.join(result['others'])}.", "parameters",
             result["differences"])
    if options.schedules:
        result = figures.schedules(program, options.schedules, options.seed, workers)
        part("Schedules", f"{result['compared']} compared, every rank of them, {len(result['differences'])} differ.", "schedules", result["differences"])
    if options.buffers:
        result = figures.buffers(program, folder / "buffers", options.buffers, options.seed, workers)
        part("Buffers", f"{result['compared']} chunks compared, {len(result['differences'])} differ.", "buffers", result["differences"])
    apart = [(name, differences) for name, _, differences in train.compare(program, live=True)] if options.training else []
    if apart:
        part("Training", f"{train.STEPS} steps of tiny models from the same weights in fp32, layers of the core without Transformer Engine, gloo: largest relative "
             "difference of a step.\n\n| model | loss | gradient norm |\n|---|---|---|\n"
             + "\n".join(f"| {name} | {differences['loss']:.1e} | {differences['grad_norm']:.1e} |" for name, differences in apart), "schedules", [])
    return parts


def judge_commands(options, part):
    """The part about random commands."""
    seeds = range(options.first_seed, options.first_seed + options.commands)
    folder = Path(options.folder) / "commands"
    rows = kept(options, "commands", lambda: in_blocks(options, seeds, lambda some: legality.judged(options.mgplan, folder, some, options.workers)))
    decided = [row for row in rows if row["outcome"] != "undecided"]
    differing = [row for row in decided if row["outcome"] == "differ"]
    counts = collections.Counter((row["gate"], "a stand-in stops" if row["undecided"] else "accepts" if row["accepted"] else "raises") for row in rows)
    named = known.Known("commands")
    stays = {entry["kind"] for entry in named.entries if entry.get("stays")}
    excused = sum((entry := named.take(legality.text(row))) is not None and entry["kind"] in stays for row in differing)
    grid = ["| | accepts | raises | a stand-in stops |", "|---|---|---|---|"]
    for answer in ("legal", "illegal", "cannot say"):
        grid.append(f"| mgplan: {answer} | " + " | ".join(str(counts[answer, said]) for said in ("accepts", "raises", "a stand-in stops")) + " |")
    said = sum(row["gate"] != "cannot say" for row in rows)
    agreeing = len(decided) - len(differing)
    share = 100 * agreeing / max(len(decided) - excused, 1)
    part("Random commands", f"{len(rows)} commands (seeds from {options.first_seed} on): mgplan decides {said} "
         f"({100 * said / max(len(rows), 1):.1f} %), both decide {len(decided)}, {agreeing} agree; without the {excused} of kinds that are no faults {share:.1f} %.\n\n"
         + "\n".join(grid), "commands", [legality.text(row) for row in differing])


def parts_of(text):
    """Parts of a section by their titles."""
    return {part.partition("\n")[0][4:]: part.partition("\n")[2].strip() for part in re.split(r"(?m)^(?=### )", text)[1:]}


def run(options):
    title = version()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    measured = section(options)
    text = PAGE.read_text() if PAGE.exists() else HEAD
    sections = {part.splitlines()[0][3:]: part for part in re.split(r"(?m)^(?=## )", text)[1:]}
    parts = parts_of(sections.get(title, "")) | measured
    sections[title] = "\n\n".join([f"## {title}", *(f"### {name}\n\n{part}" for name, part in parts.items())])
    PAGE.write_text("\n\n".join([HEAD.rstrip(), *(part.rstrip() for part in sections.values())]) + "\n")
    print(f"written: {PAGE}")
    return 0
