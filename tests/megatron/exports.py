"""Every preset in several layouts: planned and exported by mgplan, started by Megatron-LM."""

import jobs
import mgplan
import oracle
import server


def judged(program, folder, count, seed, workers, models=None):
    """Returns a row for each layout, with the verdict's line under "verdict"."""
    presets = mgplan.presets(program)
    chosen = {name: presets[name] for name in models} if models else presets
    rows = mgplan.export_all(program, folder, mgplan.layouts(chosen, count, seed), workers)
    commands, of = [], []
    for row in rows:
        if row["stage"] != "exported":
            continue
        words, environment = jobs.read(row["sh"])
        if jobs.read(row["yaml"]) != (words, environment):
            row["verdict"] = "the YAML says something else than the script"
            continue
        capability = jobs.capability_of(mgplan.option(row["options"], "--cluster"))
        commands.append(oracle.Command(jobs.with_users_own(words), row["world"], capability, environment, wants=("parameters", "buffers")))
        of.append(row)
    for index, verdict in server.judge_all(commands, workers):
        of[index].update(verdict=verdict.line(), accepted=verdict.accepted, stages=verdict.facts.get("stages", {}))
        for stage in of[index]["stages"].values():
            stage.pop("chunks", None)
    return rows


def text(row):
    """A layout that Megatron-LM does not start, in a line."""
    return f"{row['model']} ({' '.join(row['options'])}): {row['verdict'] if row['stage'] == 'exported' else row['stage'] + ', ' + row['message']}"
