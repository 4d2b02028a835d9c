#!/usr/bin/env python3
"""Unpickles what `mgplan simulate --memory-snapshot` writes, with Python's own library, and holds it against PyTorch's rules.

    memory_snapshot_test.py MGPLAN

Every free has its allocation, live blocks lie in a segment and do not overlap, the entries lead to the final segments, the largest sum of
live tensors is the peak that the answer states, and the segments hold what it says is reserved.
"""

import collections
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

JOBS = {
    "a pipeline": "--world 16 --model llama3-8b --tp 2 --pp 2 --micro-batch 1 --global-batch 128",
    "chunks": "--world 8 --model llama3.2-1b --pp 2 --vpp 2 --tp 2 --global-batch 64",
    "full recompute": "--world 8 --model llama3.2-1b --tp 2 --recompute full --global-batch 64",
    "experts, cut": "--world 256 --model deepseek-v3 --ep 16 --pp 16 --global-batch 4096",
    "weights in fp8": "--world 16 --model llama3-8b --tp 2 --pp 2 --precision fp8 --global-batch 64",
    "bf16 gradients": "--world 16 --model llama3-8b --tp 2 --global-batch 64 --grad-dtype bf16",
    "segments freed at the limit": "--world 8 --model llama3-8b --micro-batch 4 --global-batch 32 --max-memory 60GiB",
}
# As torch 2.9 records them (torch/csrc/cuda/Module.cpp; the types in torch/cuda/memory.py).
ENTRY = {"action", "addr", "size", "stream", "time_us", "frames"}
SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type", "segment_pool_id",
           "is_expandable", "frames", "blocks"}
BLOCK = {"address", "size", "requested_size", "state", "frames"}


def snapshot_of(mgplan, words, folder):
    """The snapshot and the answer's JSON."""
    path = Path(folder) / "snapshot.pickle"
    done = subprocess.run([mgplan, "simulate", *words.split(), "--format", "json", "--memory-snapshot", path], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: does not fit
        sys.exit(f"mgplan simulate {words}: exit code {done.returncode}\n{done.stderr}")
    return pickle.loads(path.read_bytes()), json.loads(done.stdout)


class Device:
    """Live tensors and segments, entry by entry."""

    def __init__(self, segments, live):
        self.segments, self.live, self.bytes = segments, live, sum(size for size, _ in live.values())
        self.peak = self.bytes

    def play(self, entry):
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "segment_alloc":
            assert all(address + size <= other or other + bytes_ <= address for other, bytes_ in self.segments.items()), "segments overlap"
            self.segments[address] = size
        elif action == "segment_free":
            assert self.segments.pop(address) == size
            assert not any(address <= block < address + size for block in self.live), "a segment with tensors is freed"
        elif action == "alloc":
            assert address not in self.live, "two tensors in one place"
            self.live[address] = (size, entry["frames"])
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
        elif action == "free_requested":
            assert self.live[address] == (size, entry["frames"]), "a free without its allocation"
        else:
            assert action == "free_completed", action
            self.bytes -= self.live.pop(address)[0]

    def check_places(self):
        """Each live tensor lies in one segment, and none in another."""
        ends = sorted((address, address + size) for address, (size, _) in self.live.items())
        assert all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:])), "tensors overlap"
        segments = iter(sorted((address, address + size) for address, size in self.segments.items()))
        segment = next(segments)
        for begin, end in ends:
            while begin >= segment[1]:
                segment = next(segments)
            assert segment[0] <= begin and end <= segment[1], "a tensor leaves its segment"


def check(snapshot, answer):
    """Returns the final segments' blocks by state."""
    stated = answer["memory_snapshot"]
    (trace,) = snapshot["device_traces"]
    segments = {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
    blocks = {}
    for segment in snapshot["segments"]:
        assert set(segment) == SEGMENT
        at = segment["address"]
        for block in segment["blocks"]:
            assert set(block) == BLOCK and block["address"] == at and block["size"] > 0
            assert block["state"] in ("active_allocated", "inactive")
            at += block["size"]
            if block["state"] == "active_allocated":
                assert 0 < block["requested_size"] <= block["size"] and block["frames"]
                blocks[block["address"]] = (block["requested_size"], block["frames"])
        assert at == segment["address"] + segment["total_size"], "blocks fill their segment"
        active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in active)
        assert segment["requested_size"] == sum(block["requested_size"] for block in active)
    assert all(set(entry) == ENTRY for entry in trace)
    assert [entry["time_us"] for entry in trace] == list(range(len(trace)))
    assert len(trace) == stated["events"]

    # Blocks that the trace does not allocate are there before it begins.
    allocated = {(entry["addr"], len(entry["frames"]) and json.dumps(entry["frames"])) for entry in trace if entry["action"] == "alloc"}
    taken = {entry["addr"] for entry in trace if entry["action"] == "segment_alloc"}
    freed = {entry["addr"]: entry["size"] for entry in trace if entry["action"] == "segment_free" and entry["addr"] not in taken}
    before = {address: block for address, block in blocks.items() if (address, json.dumps(block[1])) not in allocated}
    device = Device({address: size for address, size in segments.items() if address not in taken} | freed, before)
    assert bool(before) != stated["setup"], "a whole trace begins with an empty device"
    for number, entry in enumerate(trace):
        device.play(entry)
        if number % 997 == 0:
            device.check_places()
    device.check_places()
    assert device.live == blocks and device.segments == segments, "the entries lead to the segments"
    assert device.peak == stated["requested_bytes"]

    # The prediction's own replay, which keeps no names.
    replay = answer["predicted"]["memory"]["allocator_replay"]
    if "quantised weights" not in frames_of(snapshot, "held throughout"):  # which the prediction's replay leaves out
        assert stated["allocated_bytes"] == replay["allocated_bytes"] and stated["reserved_bytes"] == replay["reserved_bytes"]
    # The prediction counts bytes by other means; padding of the optimizer's shards is no tensor.
    framework = answer["predicted"]["memory"]["framework_bytes"]
    assert abs(stated["requested_bytes"] - framework) < 1e-3 * framework, (stated["requested_bytes"], framework)
    assert stated["requested_bytes"] <= stated["allocated_bytes"] <= stated["reserved_bytes"]
    if not any(entry["action"] == "segment_free" for entry in trace):
        assert sum(segments.values()) == stated["reserved_bytes"]
    assert stated["rank"] == answer["predicted"]["memory"]["worst_rank"]
    return collections.Counter(block["state"] for segment in snapshot["segments"] for block in segment["blocks"])


def frames_of(snapshot, part):
    """Names of a part's tensors that are live at the end."""
    frames = [block["frames"][0] for segment in snapshot["segments"] for block in segment["blocks"] if block["frames"]]
    return {frame["name"] for frame in frames if frame["filename"] == part}


def check_names(snapshot, answer):
    """Parameters and moments are there by name, and activations name the layers whose parameters the rank holds, in both passes."""
    parameters = frames_of(snapshot, "main parameters")
    assert parameters == frames_of(snapshot, "exp_avg") == frames_of(snapshot, "exp_avg_sq") != set()
    layers = collections.defaultdict(set)
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc" and entry["frames"][1]["filename"] == "microbatch":
            tensor, run, iteration = entry["frames"]
            assert 0 <= run["line"] < answer["memory_snapshot"]["microbatches"] and iteration["filename"] == "iteration"
            if tensor["filename"] == "decoder.layers":
                direction, chunk = run["name"].split(" of chunk ")
                layers[direction, int(chunk)].add(tensor["line"])
    sizes = answer["layout"]["layers_per_chunk"][answer["memory_snapshot"]["stage"]]
    assert set(layers) == {(direction, chunk) for direction in ("forward", "backward") for chunk in range(len(sizes))}
    for chunk, size in enumerate(sizes):
        assert layers["forward", chunk] == layers["backward", chunk] and len(layers["forward", chunk]) == size, (chunk, layers)
    # A rank's shard need not hold a part of every parameter.
    assert {int(name.split(".")[2]) for name in parameters if name.startswith("decoder.layers.")} <= set().union(*layers.values())


def main():
    actions = collections.Counter()
    cut = 0
    with tempfile.TemporaryDirectory() as folder:
        for what, words in JOBS.items():
            print(f"{what}: mgplan simulate {words}", flush=True)
            snapshot, answer = snapshot_of(sys.argv[1], words, folder)
            states = check(snapshot, answer)
            check_names(snapshot, answer)
            actions.update(entry["action"] for entry in snapshot["device_traces"][0])
            cut += not answer["memory_snapshot"]["setup"]
            print(f"    {answer['memory_snapshot']['events']} events, {states['active_allocated']} tensors and {states['inactive']} holes at the end")
    assert cut and all(actions[action] for action in ("alloc", "free_completed", "segment_alloc", "segment_free")), (cut, actions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
