"""A part of tests/gpu/run's commands: what it starts, and what becomes of it."""

import dataclasses
import datetime
import json
import math
from pathlib import Path
from typing import Any, Callable


@dataclasses.dataclass
class Verdict:
    why: str = ""  # why it has not passed; empty where it has
    summary: str = ""
    data: Any = None  # kept in results.json
    output: str = ""


ALL_CARDS = ((0, 1000),)  # ranges of compute capability, 89 for 8.9: from, below


def of(cards, capability):
    return any(low <= capability < below for low, below in cards)


def words_of(cards):
    """"8.9 or later", "9.0", "10.0 to 11.9"."""
    def words(low, below):
        return f"{low / 10:.1f}" if below == low + 1 else f"{low / 10:.1f} or later" if below == 1000 else f"{low / 10:.1f} to {(below - 1) / 10:.1f}"
    return ", or ".join(words(*each) for each in cards)


@dataclasses.dataclass
class Part:
    seconds: int  # its limit
    work: Callable
    tests: str = ""  # GoogleTest's filter, where it is tests of gpu_all
    cards: tuple = ALL_CARDS  # compute capabilities (on others it is no part of the command)
    least: int | None = None  # with fewer seconds left it is not begun: stopped halfway, it would seem to have failed
    until: float = 1.0  # share of the command's seconds by which it ends, so that parts behind it get theirs
    goes_on: bool = False  # keeps what it did and goes on with it in the next call
    timed: bool = False  # measures seconds: the card's clocks are read behind it
    again: bool = False  # judges what other parts measured: in every call anew, and the newest verdict counts

    def __post_init__(self):
        if self.least is None:
            self.least = self.seconds // 3


def ended(code, output, seconds):
    """Why a process that should exit with 0 did not; empty where it did."""
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it said nothing")
    if code is None:
        return f"not done within {seconds:.0f} s; last: {last[:300]}"
    if code < 0:
        return f"ended by signal {-code}; last: {last[:300]}"
    if code == 77:
        return f"no GPU could be used although nvidia-smi lists one: {last[:600]}"
    return f"exit code {code}: {last[:600]}" if code != 0 else ""


def read_json(path):
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def finite(value):
    """Whether it is a number, and neither infinite nor none."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def moment():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
