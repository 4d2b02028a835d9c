"""Random commands, judged by mgplan's gate and by Megatron-LM."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import mgplan
import oracle
import random_commands
import server


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
    rows = [{} for _ in drawn]
    for index, verdict in server.judge_all(commands, workers):
        answer, line = gates[index]
        if verdict.undecided or answer == mgplan.CANNOT_SAY:
            outcome = "undecided"
        else:
            outcome = "agree" if verdict.accepted == (answer == mgplan.LEGAL) else "differ"
        rows[index] = {"seed": drawn[index].seed, "kind": drawn[index].kind, "gate": answer, "gate_line": line, "accepted": verdict.accepted,
                       "undecided": verdict.undecided, "verdict": verdict.line(), "outcome": outcome, "world": drawn[index].world, "cluster": drawn[index].cluster}
    return rows


def text(row):
    """A command on which both differ, in a line."""
    return f"seed {row['seed']}: mgplan {row['gate']} ({row['gate_line'] if row['gate'] != mgplan.LEGAL else 'runs'}), Megatron-LM {row['verdict']}"
