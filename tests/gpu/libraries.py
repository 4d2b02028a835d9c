"""Whether the libraries that a card's machine loads are those that the bundle was built for."""

from pathlib import Path

from part import ended, read_json

NAMES = ("cuda", "cublas_lt", "cudnn", "nccl")


def unfit(loaded, built, folders):
    """Why nothing passes with these versions; empty where they are of the bundle's major versions."""
    for name in NAMES:
        have, want = loaded.get(name) or "", built.get(name) or ""
        if not have:
            return f"{name} was not loaded; libraries are looked for in {folders}"
        if not want:
            return f"the bundle does not say for which {name} it was built; make it again with tests/gpu/pack"
        if have.split(".")[0] != want.split(".")[0]:
            return f"{name} is version {have} here, and the bundle was built for {want}: another major version"
    return ""


def judged(data, runner):
    return unfit(data, runner.results["bundle"]["libraries"], runner.environment["LD_LIBRARY_PATH"])


def check(runner, build, seconds=60):
    """The same of what a short process loads on this machine: why nothing passes on it."""
    file = Path(runner.scratch.name) / "versions.json"
    code, output = runner.process([build / "bin/gpu_all", "bench", "--versions", file], seconds)
    data = read_json(file)
    if data is None or code != 0:
        return ended(code, output, seconds) or "gpu_all bench --versions wrote nothing"
    return judged(data, runner)
