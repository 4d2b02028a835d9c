"""Every preset in several layouts: planned and exported by mgplan, started by Megatron-LM."""

import argparse
import re

import jobs
import mgplan
import oracle
import server


def version_of_megatron():
    """Name of the oracle's version in `mgplan export --megatron`. Branch dev has the number of its last release, and a flag of its own."""
    flags = oracle.arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))._option_string_actions
    return "dev" if "--offload-optimizer-states" in flags else oracle.version().rpartition(".")[0]


def judged(program, folder, numbers, seed, workers):
    """Returns a row for these layouts of each preset, and of a hybrid with multi-token prediction, with the verdict's line under "verdict"."""
    models = mgplan.presets(program) | mgplan.predicting(program, folder)
    rows = mgplan.export_all(program, folder, version_of_megatron(), mgplan.layouts(models, numbers, seed), workers)
    commands, of = [], []
    for row in rows:
        if row["stage"] != "exported":
            continue
        words, environment = jobs.read(row["sh"])
        row["yaml_agrees"] = jobs.read(row["yaml"]) == (words, environment)
        capability = jobs.capability_of(mgplan.option(row["options"], "--cluster"))
        commands.append(oracle.Command(jobs.with_users_own(words), row["world"], capability, environment, wants=("parameters", "buffers")))
        of.append(row)
    for index, verdict in server.judge_all(commands, workers):
        of[index].update(verdict=verdict.line(), accepted=verdict.accepted, stages=verdict.facts.get("stages", {}))
        for stage in of[index]["stages"].values():
            stage.pop("chunks", None)
    return rows


def starts_another_model(row):
    """Returns true if the export names a field of the model's layers that no flag carries."""
    return re.search(r"no flag(?: of Megatron-LM \S+)? says that model\.(?!mla\.norm_epsilon|norm_epsilon|max_positions|rotary)", row["lost"]) is not None


def texts(rows):
    """A line for each layout that Megatron-LM does not start, and for each YAML file that does not say what the script says."""
    for row in rows:
        name = f"{row['model']} ({' '.join(row['options'])})"
        if row["stage"] == "no plan" and row["number"] >= mgplan.FIXED:
            continue  # drawn, and there is no such layout
        if row["stage"] != "exported":
            yield f"{name}: {row['stage']}, {row['message']}"
        elif not row["accepted"]:
            yield f"{name}: {row['verdict']}"
        if row.get("yaml_agrees") is False:
            yield f"{name}: the runner of NVIDIA's functional tests makes other words of the YAML than of the script"
