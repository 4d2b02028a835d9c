"""Fetches torch, megatron-core and megatron-bridge from PyPI into a folder, once for each set of pinned versions.

    set_up.py FOLDER    prints the Python interpreter to use; exit code 77 (skipped) with a reason where PyPI is out of reach

FOLDER holds `environment` (a virtual environment with torch) and `megatron` (the Python files of NVIDIA's wheels).
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch_stubs

HERE = Path(__file__).resolve().parent
SKIPPED = 77
SOURCES = "antlr4-python3-runtime"  # pure Python, of which PyPI has no wheel
UNREACHABLE = re.compile("NewConnectionError|Connection(Refused|Reset|)Error|name resolution|ProxyError|Connect Timeout|Read timed out|"
                         "Network is unreachable|Max retries exceeded|SSLError|HTTP error 5|Retrying")


class NotReachable(Exception):
    pass


def fingerprint():
    texts = [(HERE / name).read_bytes() for name in ("requirements.txt", "requirements_megatron.txt", "set_up.py", "torch_stubs.py")]
    return hashlib.sha256(b"\0".join([sys.version.encode(), *texts])).hexdigest()


def download(python, requirements, folder, *options):
    """Downloads wheels whose hashes are those of the file, else raises."""
    done = subprocess.run([python, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps", "--require-hashes", "--no-cache-dir",
                           "--retries", "2", "--timeout", "60", "--only-binary=:all:", f"--no-binary={SOURCES}", "--no-build-isolation", *options, "-d", folder,
                           "-r", requirements],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return
    last = (done.stdout.strip().splitlines() or ["no message"])[-1]
    if UNREACHABLE.search(done.stdout) and "DO NOT MATCH" not in done.stdout:
        raise NotReachable(last)
    sys.exit(f"pip cannot download {requirements}:\n{done.stdout[-3000:]}")


def unpack(wheels, folder, is_wanted=lambda name: True):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if is_wanted(member.filename):
                    archive.extract(member, folder)


def unpack_sources(archives, folder):
    """Modules lie in the folder src of each archive."""
    for path in archives:
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                _, found, name = member.name.partition("/src/")
                if found and member.isfile() and not name.startswith(("/", "..")):
                    target = folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())


def split_requirements(folder):
    """Writes requirements.txt as two files: the wheel of torch takes as long as all others."""
    lines = [line for line in (HERE / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    (folder / "torch.txt").write_text("".join(line + "\n" for line in lines if line.startswith("torch==")))
    (folder / "others.txt").write_text("".join(line + "\n" for line in lines if not line.startswith("torch==")))
    return folder / "torch.txt", folder / "others.txt"


def fill(folder):
    environment, scratch = folder / "environment", folder / "download"
    shutil.rmtree(environment, ignore_errors=True)
    shutil.rmtree(folder / "megatron", ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    venv.create(environment, with_pip=True, symlinks=True)
    python = environment / "bin/python"
    torch_requirements, other_requirements = split_requirements(scratch)
    newer = ("--python-version", "3.12", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_24_x86_64")
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(download, python, torch_requirements, scratch / "torch"), pool.submit(download, python, other_requirements, scratch / "others"),
                pool.submit(download, python, HERE / "requirements_megatron.txt", scratch / "megatron", *newer)]
        for job in jobs:
            job.result()
    site = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    unpack((scratch / "others").glob("*.whl"), site)
    unpack_sources((scratch / "others").glob("*.tar.gz"), site)
    unpack((scratch / "torch").glob("*.whl"), site, torch_stubs.is_needed)
    (site / "torch/bin/torch_shm_manager").chmod(0o755)
    unpack((scratch / "megatron").glob("*.whl"), folder / "megatron", lambda name: not name.endswith(".so"))
    torch_stubs.write_stubs(site / "torch")
    shutil.rmtree(scratch)


def set_up(folder):
    """Returns the interpreter; raises NotReachable where PyPI does not answer."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "ready"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != fingerprint():
            stamp.unlink(missing_ok=True)
            began = time.monotonic()
            fill(folder)
            stamp.write_text(fingerprint())
            print(f"set up in {time.monotonic() - began:.0f} s: {folder}", file=sys.stderr)
    return folder / "environment/bin/python"


def main():
    if sys.version_info[:2] != (3, 11) or os.uname().machine != "x86_64":
        sys.exit("the pinned wheels are those of Python 3.11 on x86_64; run this with Debian 12's /usr/bin/python3")
    try:
        print(set_up(sys.argv[1]))
    except NotReachable as reason:
        print(f"skipped: PyPI is out of reach ({reason})")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
