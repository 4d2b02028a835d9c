"""Random commands, judged by mgplan's gate and by Megatron-LM."""

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import mgplan
import oracle
import random_commands
import server


def left_to_the_launcher(line):
    """Variables of the environment that the gate says the launcher has to set."""
    return dict(re.findall(r"(\w+)=(\w+) in the environment", line.partition("unless the launcher does: ")[2]))


def judged(program, folder, seeds, workers):
    """Returns a row for each seed: what both say, and whether they agree ("agree", "differ" or "undecided")."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    drawn = [random_commands.command(seed) for seed in seeds]

    def ask_gate(command):
        script = Path(folder) / f"{command.seed:06d}.sh"
        script.write_text(command.script())
        return mgplan.gate(program, script, command.world, command.cluster)

    with ThreadPoolExecutor(workers) as pool:
        gates = list(pool.map(ask_gate, drawn))
    commands = [oracle.Command([*command.words(), "--mock-data"], command.world, jobs.capability_of(command.cluster), command.environment) for command in drawn]
    verdicts = dict(server.judge_all(commands, workers))
    # A gate that names variables is right if the command stops without them and starts with them.
    conditions = {index: left_to_the_launcher(line) for index, (answer, line) in enumerate(gates) if answer == mgplan.LEGAL}
    needless = {index for index, variables in conditions.items() if variables and verdicts[index].accepted}
    stopped = [index for index, variables in conditions.items() if any(name in verdicts[index].message for name in variables)]
    again = [dataclasses.replace(commands[index], environment=commands[index].environment | conditions[index]) for index in stopped]
    for number, verdict in server.judge_all(again, workers):
        verdicts[stopped[number]] = verdict
    rows = [{} for _ in drawn]
    for index, verdict in verdicts.items():
        answer, line = gates[index]
        if verdict.undecided or answer == mgplan.CANNOT_SAY:
            outcome = "undecided"
        else:
            outcome = "agree" if verdict.accepted == (answer == mgplan.LEGAL) and index not in needless else "differ"
        rows[index] = {"seed": drawn[index].seed, "kind": drawn[index].kind, "gate": answer, "gate_line": line, "accepted": verdict.accepted,
                       "undecided": verdict.undecided, "verdict": verdict.line(), "outcome": outcome, "world": drawn[index].world, "cluster": drawn[index].cluster}
    return rows


def text(row):
    """A command on which both differ, in a line."""
    return f"seed {row['seed']}: mgplan {row['gate']} ({row['gate_line'] if row['gate'] != mgplan.LEGAL else 'runs'}), Megatron-LM {row['verdict']}"
