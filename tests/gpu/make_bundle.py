#!/usr/bin/env python3
"""Makes the plans that tests/gpu/run judges, and packs them with a build: make_bundle.py BUILD_FOLDER

BUILD_FOLDER/gpu holds bin/gpu_all and lib, as the target portable_gpu leaves them; BUILD_FOLDER/gpu.tar.xz is written. Called by
tests/gpu/pack. Exit codes: 0 done, 1 too large, 4 a plan could not be made, or the headers tell no version."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bundle as bundles  # noqa: E402

UNPACK = """python3 -c "import tarfile; tarfile.open('build/portable/gpu.tar.xz').extractall('build/portable')\""""
MOST_BYTES = 24_000_000  # of the packed bundle
MOST_TOGETHER = 64 << 20  # with the tracked files of the tree: what travels to the other machine

# Ranks of large plans, each of 1 to 3 billion parameters, small enough for a card of 80 GB. Several microbatches, so that the optimizer is
# not most of a step. name: (arguments of plan, rank)
LARGE = "--micro-batch 1 --vpp 1 --cp 1 --cluster dgx-h100"
RANKS = {
    "llama3-8b-tp1": (f"--world 8 --model llama3-8b --tp 1 --pp 4 --global-batch 16 {LARGE}", 0),
    "llama3-8b-tp2": (f"--world 8 --model llama3-8b --tp 2 --pp 2 --global-batch 16 --sequence-parallel on {LARGE}", 0),
    "llama3-8b-tp4": (f"--world 8 --model llama3-8b --tp 4 --pp 1 --global-batch 16 --sequence-parallel on {LARGE}", 0),
    "llama3-8b-tp8": (f"--world 16 --model llama3-8b --tp 8 --pp 1 --global-batch 16 --sequence-parallel on {LARGE}", 0),
    "llama3-70b-first": (f"--world 128 --model llama3-70b --tp 8 --pp 8 --global-batch 32 --sequence-parallel on {LARGE}", 0),
    "llama3-70b-last": (f"--world 128 --model llama3-70b --tp 8 --pp 8 --global-batch 32 --sequence-parallel on {LARGE}", 127),
    "gpt3-175b-tp8": (f"--world 128 --model gpt3-175b --tp 8 --pp 8 --global-batch 32 --sequence-parallel on {LARGE}", 0),
    "mixtral-8x7b-ep8": (f"--world 32 --model mixtral-8x7b --tp 1 --ep 8 --etp 1 --pp 4 --global-batch 64 {LARGE}", 0),
    "deepseek-v2-lite-ep8": (f"--world 8 --model deepseek-v2-lite --tp 1 --ep 8 --etp 1 --pp 1 --global-batch 32 {LARGE}", 0),
    "nemotron-h-8b-pp4": (f"--world 8 --model nemotron-h-8b --tp 1 --pp 4 --global-batch 16 {LARGE}", 0),
    "gpt2-124m": (f"--world 8 --model {Path(__file__).resolve().parent}/gpt2-124m.json --tp 1 --pp 1 --ep 1 --global-batch 64 "
                  "--micro-batch 8 --cp 1 --vpp 1 --cluster dgx-h100", 0),
}
# Those that a borrowed card runs first, each as unlike the others as can be: dense, experts, a hybrid, shards of a larger model, small kernels.
FIRST = ("llama3-8b-tp1", "mixtral-8x7b-ep8", "nemotron-h-8b-pp4", "llama3-70b-first", "gpt2-124m")
# One rank each, of eight microbatches: what layer and full-iteration graphs gain.
WHOLE = {
    "gpt2": (f"--world 1 --model {Path(__file__).resolve().parent}/gpt2-124m.json --global-batch 8 --micro-batch 1 --cluster dgx-h100 "
             "--recompute none", -1),
    "llama3.2-1b": ("--world 1 --model llama3.2-1b --global-batch 8 --micro-batch 1 --cluster dgx-h100 --recompute none", -1),
}
# Two ranks, once as threads and once as processes over NCCL.
SMALL = "--world 2 --model tiny-llama --seq 64 --global-batch 4 --micro-batch 1 --cluster dgx-h100 --vpp 1 --cp 1"
PARITY = {f"parity-{name}{2}": (f"{SMALL} {' '.join(f'--{axis} {2 if axis == name else 1}' for axis in ('tp', 'pp'))}", -1)
          for name in ("tp", "pp", "dp")}


def make_plans(program, folder):
    folder.mkdir(exist_ok=True)
    listed = []
    everything = {**RANKS, **WHOLE, **PARITY}
    for name in dict.fromkeys((*FIRST, *everything)):
        arguments, rank = everything[name]
        file = folder / f"{name}.plan.json"
        done = subprocess.run([program, "mgplan", "plan", "--engine", "mgplan", *arguments.split(), "--top", "1", "--save-plan", file],
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0 or not file.exists():
            print(f"tests/gpu/pack: no plan {name} (exit code {done.returncode}): {done.stderr.strip()[:600]}", file=sys.stderr)
            sys.exit(4)
        listed.append({"name": name, "file": file.name, "rank": rank, "world": int(arguments.split()[1]), "first": name in FIRST})
    (folder / "plans.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return listed


def cached(build, name):
    """A variable of the build's CMake cache; empty where it has none."""
    found = re.search(rf"^{name}:[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else ""


def versions(build):
    """Versions of the libraries built against, by their headers' #defines."""
    def version(feature, header, names, coded=None):
        path = Path(cached(build, f"MGPLAN_{feature}_INCLUDE_DIR")) / header
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        numbers = [found.group(1) for name in names if (found := re.search(rf"^#define\s+{name}\s+(\d+)", text, re.MULTILINE))]
        return coded(int(numbers[0])) if coded and numbers else ".".join(numbers)
    return {"cuda": version("CUDA", "cuda_runtime_api.h", ["CUDART_VERSION"], lambda v: f"{v // 1000}.{v % 1000 // 10}"),
            "cublas_lt": version("CUDA", "cublas_api.h", ["CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"]),
            "cudnn": version("CUDNN", "cudnn_version.h", ["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"]),
            "nccl": version("NCCL", "nccl.h", ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"])}


def pack(build):
    """Writes gpu.tar.xz; returns its bytes."""
    archive = build / "gpu.tar.xz"
    with tarfile.open(archive, "w:xz", preset=6, dereference=True) as tar:
        for path in sorted((build / "gpu").rglob("*")):
            if path.is_file():
                tar.add(path, arcname=path.relative_to(build), recursive=False)
    return archive.stat().st_size


def tree_bytes():
    """Of the tracked files; 0 without version control."""
    try:
        listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", bundles.ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    paths = [bundles.ROOT / name.decode() for name in listed.split(b"\0") if name]
    return sum(path.stat().st_size for path in paths if path.is_file())


def main(build):
    folder = build / "gpu"
    make_plans(folder / "bin/gpu_all", folder / "plans")
    built = versions(build)
    if unknown := [name for name, version in built.items() if not version]:
        print(f"tests/gpu/pack: the headers in {build}/CMakeCache.txt's folders do not tell the version of {', '.join(unknown)}, by which run knows "
              f"whether a machine's libraries fit; build again with these libraries' headers", file=sys.stderr)
        return 4
    architectures = [name for name in cached(build, "MGPLAN_CUDA_ARCHITECTURES").split(";") if name]
    about = {"sources": bundles.sources_id(), "commit": bundles.commit(), "architectures": architectures, "libraries": built}
    (folder / "bundle.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    size, tree = pack(build), tree_bytes()
    print(f"build/portable/gpu.tar.xz: {size / 1e6:.1f} MB, with the tree {(size + tree) / (1 << 20):.1f} MiB; commit {about['commit']}")
    if size > MOST_BYTES or size + tree > MOST_TOGETHER:
        print(f"tests/gpu/pack: too large: at most {MOST_BYTES / 1e6:.0f} MB, and with the tree {MOST_TOGETHER >> 20} MiB", file=sys.stderr)
        return 1
    print(f"""
On a card that is borrowed for 15 minutes, with build/portable/gpu.tar.xz carried along, one line for each call:

    {UNPACK} && tests/gpu/run borrowed --seconds 500

and the same again at once, while the machine is warm (30 s), with --seconds 260: the minutes that are left, less half a one. A machine that is
fresh wants build/gpu-results too, as tests/gpu/take leaves it here, and none is started with less than 4 minutes left; a warm one has the
newer there. See docs/gpu-machines.md.

On a card of one's own, behind the same unpacking, each within 9 minutes, into the folder $OUT or build/gpu-results:

    tests/gpu/run correctness
    tests/gpu/run speed
    tests/gpu/run prediction         # needs the results of speed: --earlier FILE, or in build/gpu-results

Then here, behind each command: tests/gpu/take FOLDER""")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} BUILD_FOLDER")
    sys.exit(main(Path(sys.argv[1]).resolve()))
