"""What pack, run and take share: which sources a bundle was built from, and what card there is."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import programs

ROOT = Path(__file__).resolve().parent.parent.parent

# What the program is made of. docs, data and scripts may change without a new bundle.
SOURCE_FILES = ("CMakeLists.txt", "CMakePresets.json")
SOURCE_FOLDERS = ("cli", "cmake", "configs", "formats", "jobs", "model", "plan", "planner", "reports", "runtime", "simulator", "tests/gpu",
                  "tests/model/ops", "tests/support")
SOURCE_ENDINGS = (".cpp", ".hpp", ".cu", ".cuh", ".cmake", ".map", ".txt", ".json")


class Refused(Exception):
    """Bad input: one sentence, exit code 2."""


def sources_id(root=ROOT):
    """A hash of the sources' paths and bytes, which needs no version control."""
    paths = [root / name for name in SOURCE_FILES if (root / name).is_file()]
    for folder in SOURCE_FOLDERS:
        # What take writes is no source of the program that wrote it.
        paths += sorted(path for path in (root / folder).rglob("*")
                        if path.suffix in SOURCE_ENDINGS and not path.name.endswith("-measured.json"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def commit(root=ROOT):
    """Of the tree, with a + where files differ from it; empty where it cannot be told."""
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed.strip() else "")


def read_bundle(folder):
    """What pack says of the bundle in this folder."""
    try:
        bundle = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
        return {key: bundle[key] for key in ("sources", "commit", "architectures", "libraries")}
    except OSError:
        raise Refused(f"{folder} holds no bundle (no bundle.json); make one with tests/gpu/pack and unpack it there")
    except (ValueError, KeyError, TypeError) as problem:
        raise Refused(f"{folder}/bundle.json is broken ({problem}); make the bundle again with tests/gpu/pack")


def query_cards():
    """[{"name", "driver", "memory_mib", "used_mib", "compute"}] as nvidia-smi has them; none where it is missing or fails."""
    fields = "name,driver_version,memory.total,memory.used,compute_cap"
    try:
        code, said = programs.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"], 60)
    except OSError:
        return []
    cards = []
    for line in said.splitlines() if code == 0 else []:
        words = [word.strip() for word in line.split(",")]
        if len(words) == 5:
            cards.append(dict(zip(("name", "driver", "memory_mib", "used_mib", "compute"), words)))
    return cards


def runs_on(architecture, capability):
    """Whether code for an architecture of CMAKE_CUDA_ARCHITECTURES runs on a card, both as 90 for 9.0: machine code on cards of the same
    major version that are no older, what is kept as PTX (without -real) on all later ones, too."""
    number, _, kind = architecture.partition("-")
    if number.endswith("a"):
        return int(number[:-1]) == capability
    major, same = int(number) // 10, capability // 10
    machine_code = kind != "virtual" and major == same and int(number) <= capability
    return machine_code or (kind != "real" and int(number) <= capability)


def capability_of(card):
    """90 for 9.0."""
    major, _, minor = card["compute"].partition(".")
    return 10 * int(major) + int(minor or 0)


def check_card(card, bundle):
    """Raises Refused where the bundle holds no code for the card."""
    capability = capability_of(card)
    if not any(runs_on(architecture, capability) for architecture in bundle["architectures"]):
        raise Refused(f"{card['name']} has compute capability {card['compute']}, and the bundle holds code for "
                      f"{', '.join(bundle['architectures'])} alone; pack again with tests/gpu/pack --architectures {capability}-real")


def check_sources(bundle, folder, root=ROOT):
    """Raises Refused where the bundle was built from other sources than the tree's."""
    here = sources_id(root)
    if bundle["sources"] != here:
        raise Refused(f"the bundle in {folder} was built from other sources ({bundle['sources']}, commit {bundle['commit'] or 'unknown'}) than "
                      f"this tree has ({here}); pack it again with tests/gpu/pack, or check out its commit")


def library_folders():
    """Where CUDA's libraries may be: pip's wheels first, which belong together, then what the caller set, then a toolkit."""
    import site
    import sysconfig
    roots = {*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["purelib"]}
    folders = [str(path) for root in sorted(roots) for path in sorted(Path(root).glob("nvidia/*/lib"))]
    folders += [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    toolkit = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib")
    return folders + [folder for folder in toolkit if os.path.isdir(folder)]
