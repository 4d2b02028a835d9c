"""Judges many commands: this process imports Megatron-LM once and forks a child for each command, some at a time."""

import forks
import oracle


def died(text):
    return oracle.Verdict(False, "process", "", text, undecided=True)


def judge_all(commands, workers=2, seconds=180):
    """Yields (index, Verdict) in the order in which they are ready."""
    return forks.map_forked(oracle.judge, commands, workers, seconds, died)
