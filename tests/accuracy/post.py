#!/usr/bin/env python3
"""Published runs of fine-tuning (all weights, and adapters) and of RL beside what mgplan predicts: step time and memory, by job and stack.

    post.py check            every record has a prediction frozen before it was added (as blind.py); exit 1 and a line for each that has not
    post.py freeze MGPLAN    predicts the records that have none, with the binary of the commit that is checked out
    post.py score MGPLAN     prints the tables of docs/accuracy.md; --rows: each run; --max-time, --max-memory JOB=PERCENT: exit 1 beyond these

post/README.md says what the files hold. LoRA runs of the blind set stay there and are counted here too.
"""

import argparse
import collections
import statistics
import sys

import blind

FOLDER = blind.HERE / "post"
GIB = 2**30
STACK_OF_BLIND = "NeMo (MLPerf)"


def words_of(record, path):
    """The command of a record, after mgplan. "{NAME}" stands for the text of that name in `files`: a launch script, Megatron-LM's arguments, a
    model's config."""
    if "command" not in record:
        return blind.simulate_words(record, path)
    words = record["command"]
    for name, text in record.get("files", {}).items():
        file = path.with_suffix(f".{name}")
        file.write_text(text, encoding="utf-8")
        words = [word.replace(f"{{{name}}}", str(file)) for word in words]
    return words


def figures_of(predicted):
    """Of a command that predicts one iteration, and of mgplan rl, which states no interval."""
    if "step_seconds" in predicted:
        return {"seconds": predicted["step_seconds"], "fits": predicted["fits"], "sync_seconds": predicted.get("weight_sync_seconds"),
                "cache_bytes": predicted.get("kv_bytes")}
    memory = predicted["memory"]
    return {**blind.time_and_fit(predicted), "allocated_bytes": memory["framework_bytes"], "reserved_bytes": memory["reserved_bytes"]}


def predict(mgplan, records):
    return blind.predict(mgplan, records, words_of, figures_of)


def of_blind_set():
    """LoRA runs of the blind set as records of this one, and their frozen predictions."""
    unseen = blind.Records()
    records = [{**record, "job": "lora", "stack": STACK_OF_BLIND} for record in unseen.records if record["family"] == "lora"]
    return records, {record["id"]: unseen.frozen[record["id"]] for record in records}


def left_out(folder=FOLDER):
    return blind.read_lines(folder / "left_out.jsonl")


class Errors:
    """Relative errors of some records under `predictions`, positive when the prediction is too large."""

    def __init__(self, records, predictions):
        whole = [(record, predictions[record["id"]]) for record in records if "refused" not in predictions[record["id"]]]
        self.refused = len(records) - len(whole)
        timed = [(record, said[record.get("time_kind", "") + "seconds"], said) for record, said in whole if record.get("counts_time")]
        self.time = [predicted / record["seconds"] - 1 for record, predicted, _ in timed if predicted]
        self.inside = [said["interval_seconds"][0] <= record["seconds"] <= said["interval_seconds"][1] for record, _, said in timed if "interval_seconds" in said]
        held = [(record, said[record["memory_kind"] + "_bytes"]) for record, said in whole if "memory_kind" in record]
        self.memory = [predicted / record["bytes"] - 1 for record, predicted in held if predicted]
        self.fits = [said["fits"] for record, said in whole if record.get("counts_fit")]


def cells(errors):
    if not errors:
        return "0 | | "
    return f"{len(errors)} | {blind.percent(statistics.fmean(map(abs, errors)))} | {blind.percent(statistics.fmean(errors), signed=True)}"


def row(name, records, predictions):
    errors = Errors(records, predictions)
    inside = f"{100 * statistics.fmean(errors.inside):.0f}" if errors.inside else ""
    fits = f"{sum(errors.fits)} of {len(errors.fits)}" if errors.fits else ""
    return f"| {name} | {cells(errors.time)} | {inside} | {cells(errors.memory)} | {fits} | {errors.refused or ''} |"


def table(records, predictions):
    lines = ["| runs | times | mean error, % | bias, % | inside the interval, % | memory | mean error, % | bias, % | fit | refused |", "|---|" + "---:|" * 9]
    groups = collections.defaultdict(list)
    for record in records:
        groups[record["job"], ""].append(record)
        groups[record["job"], record["stack"]].append(record)
    return lines + [row(f"{job}, {stack}" if stack else f"**{job}**", groups[job, stack], predictions) for job, stack in sorted(groups)]


def left_out_table(lines):
    reasons = collections.Counter()
    for line in lines:
        reasons[line["reason"]] += line["rows"]
    return ["| left out, because | rows |", "|---|---:|", *(f"| {reason} | {rows} |" for reason, rows in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
            f"| **all** | {sum(reasons.values())} |"]


def section(all_of, today):
    """Lines of Markdown. `today`: what the present binary predicts, of the records and of the blind set's LoRA runs."""
    shared, shared_frozen = of_blind_set()
    records, frozen = [*all_of.records, *shared], {**all_of.frozen, **shared_frozen}
    commits = sorted({all_of.frozen[record["id"]]["commit"] for record in all_of.records})
    return ["## Fine-tuning and RL", "",
            f"{len(records)} published runs (tests/accuracy/post): sft trains all weights, lora adapters, qlora adapters of\nweights in 4 bits, grpo is a step of RL, kv the cache that an engine of RL keeps for keys and values, sync the seconds in which\nnew weights reach it. Their predictions were frozen at commit {', '.join(commits)}, before they were used:", "",
            *table(records, frozen), "", "The same runs, predicted by the commit above:", "", *table(records, today), "",
            f"Left out are {sum(line['rows'] for line in left_out())} rows that were collected with them, by kind and by what the source states, never by result:", "", *left_out_table(left_out()), ""]


def section_of(mgplan):
    """The section as the present binary predicts it."""
    all_of = blind.Records(FOLDER)
    return section(all_of, predict(mgplan, [*all_of.records, *of_blind_set()[0]]))


def beyond(records, today, limits, what):
    """Prints what is beyond its limit; True if anything is. `limits`: "JOB=PERCENT"; `what`: time or memory."""
    wrong = False
    for limit in limits:
        job, _, most = limit.partition("=")
        errors = getattr(Errors([record for record in records if record["job"] == job], today), what)
        error = 100 * statistics.fmean(map(abs, errors)) if errors else float("inf")
        print(f"fine-tuning, {job}: mean error of {what} {error:.1f} % over {len(errors)} runs, ceiling {most} %")
        wrong |= error > float(most)
    return wrong


def rows(records, predictions):
    """A line for each run: its errors in percent."""
    for record in records:
        errors = Errors([record], predictions)
        said = predictions[record["id"]]
        time = f"time {blind.percent(errors.time[0], signed=True)} of {record['seconds']:.4g} s" if errors.time else ""
        memory = f"memory {blind.percent(errors.memory[0], signed=True)} of {record['bytes'] / GIB:.1f} GiB" if errors.memory else ""
        yield f"{record['job']:4} {record['stack']:15} {record['id']}: " + ("refused" if "refused" in said else "; ".join(filter(None, [time, memory, "" if said["fits"] else "does not fit"])))


def read_arguments():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("verb", choices=("check", "freeze", "score"))
    ask.add_argument("mgplan", nargs="?")
    ask.add_argument("--rows", action="store_true")
    ask.add_argument("--max-time", action="append", default=[])
    ask.add_argument("--max-memory", action="append", default=[])
    said = ask.parse_args()
    if (said.verb == "check") != (said.mgplan is None):
        ask.error("freeze and score take the binary, check takes none")
    return said


def main():
    said = read_arguments()
    all_of = blind.Records(FOLDER)
    if said.verb == "freeze":
        print(blind.freeze(said.mgplan, all_of, words_of, figures_of))
        return 0
    found = blind.problems(all_of, blind.added_by(FOLDER / "records.jsonl"))
    for line in found:
        print(line, file=sys.stderr)
    if said.verb == "check" or found:
        return 1 if found else 0
    records = [*all_of.records, *of_blind_set()[0]]
    today = predict(said.mgplan, records)
    print("\n".join(rows(records, today) if said.rows else section(all_of, today)))
    return 1 if beyond(records, today, said.max_time, "time") | beyond(records, today, said.max_memory, "memory") else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"post.py: {error}")
