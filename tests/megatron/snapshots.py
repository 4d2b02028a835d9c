"""Loads what `mgplan simulate --memory-snapshot` writes with torch's own reader and draws it with torch's own functions."""

import importlib.util
import pickle
import re
import tempfile
from base64 import b64decode
from pathlib import Path

from torch.cuda import _memory_viz

RULES = Path(__file__).resolve().parents[1] / "cli/memory_snapshot_test.py"


def bytes_of(flamegraph):
    return sum(int(line.rsplit(" ", 1)[1]) for line in flamegraph.splitlines())


def check(snapshot, answer):
    stated = answer["memory_snapshot"]
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    # A text of every entry, and of every segment with its tensors: torch asserts that they add up.
    assert f"{stated['events']} entries" in _memory_viz.trace(snapshot)
    assert f"total_reserved: {_memory_viz.Bytes(reserved)}" in _memory_viz.segsum(snapshot)
    # Flame graphs: a line for each block, with its bytes.
    for draw in (_memory_viz.memory, _memory_viz.segments):
        lines = draw(snapshot, format_flamegraph=lambda text: text)
        assert bytes_of(lines) == reserved
        assert re.search(r"active_allocated;setup:0:before the first iteration;main parameters:0:decoder\.layers\.\d+\.", lines)
    # Pages, which hold the snapshot as torch pickles it.
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        (packed,) = re.findall(r'"base64": "([^"]+)"', page)
        assert pickle.loads(b64decode(packed)) == snapshot


def run(program):
    spec = importlib.util.spec_from_file_location("memory_snapshot_test", RULES)
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    with tempfile.TemporaryDirectory() as folder:
        for what, words in rules.JOBS.items():
            snapshot, answer = rules.snapshot_of(program, words, folder)
            check(snapshot, answer)
            print(f"{what}: {answer['memory_snapshot']['events']} events, read and drawn by torch")
    return 0
