"""Judges many commands: this process imports Megatron-LM once and forks a child for each command, some at a time.

A verdict follows from the command, the release and the files of the oracle alone, so it is kept and serves the next run of the same command."""

import hashlib
import os
import pickle
import zlib
from pathlib import Path

import forks
import oracle

HERE = Path(__file__).resolve().parent


def fingerprint():
    """What a verdict depends on besides the command."""
    judges = [HERE / "oracle.py", HERE / "torch_stubs.py", *sorted((HERE / "stand_ins").glob("*.py"))]
    own = [path.read_bytes() for path in judges]
    release = [str(path.relative_to(oracle.ROOT)).encode() + path.read_bytes() for path in sorted(oracle.ROOT.glob("megatron/**/*.py"))]
    return hashlib.sha256(b"\0".join([*own, *release])).digest()


class KeptVerdicts:
    """Verdicts in the folder that MEGATRON_VERDICTS names, a file for each command; without the variable nothing is kept."""

    def __init__(self):
        name = os.environ.get("MEGATRON_VERDICTS")
        self.folder = Path(name) if name else None
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.base = fingerprint()

    def file_of(self, command):
        return self.folder / hashlib.sha256(self.base + repr(command).encode()).hexdigest()

    def find(self, command):
        if self.folder and (file := self.file_of(command)).exists():
            return pickle.loads(zlib.decompress(file.read_bytes()))
        return None

    def keep(self, command, verdict):
        if self.folder and verdict.phase != DIED:
            file = self.file_of(command)
            unfinished = file.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(zlib.compress(pickle.dumps(verdict)))
            unfinished.replace(file)


DIED = "process"  # the phase of a verdict that the machine's load may have decided


def died(text):
    return oracle.Verdict(False, DIED, "", text, undecided=True)


def judge_all(commands, workers=2, seconds=180):
    """Yields (index, Verdict) in the order in which they are ready."""
    kept, left = KeptVerdicts(), []
    for index, command in enumerate(commands):
        verdict = kept.find(command)
        if verdict is None:
            left.append(index)
        else:
            yield index, verdict
    for number, verdict in forks.map_forked(oracle.judge, [commands[index] for index in left], workers, seconds, died):
        kept.keep(commands[left[number]], verdict)
        yield left[number], verdict
