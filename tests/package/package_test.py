"""Installs a build, packs it, and uses what comes out as others would: package_test.py BUILD_FOLDER SOURCE_FOLDER

cmake --install gives a command that plans, a manual page, completion, and libraries that the examples link; the
.tar.gz gives the same command elsewhere; the .deb name their files and what they depend on.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD, SOURCE = (Path(word).resolve() for word in sys.argv[1:3])
PLAN = ["--world", "16", "--model", "llama3-8b", "--format", "json", "--top", "1"]


def output_of(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def check(truth, what):
    if not truth:
        sys.exit(f"wrong: {what}")


def check_command(program):
    """A command that was moved finds its presets, and plans as the one of the build does."""
    moved, built = (json.loads(output_of(place, *PLAN, cwd="/"))["plans"] for place in (program, BUILD / "bin/mgplan"))
    check(moved == built and len(moved) == 1, f"{program} plans otherwise than the build")


def check_installed(prefix):
    check_command(prefix / "bin/mgplan")
    for file in ("share/man/man1/mgplan.1", "share/bash-completion/completions/mgplan", "share/doc/mgplan/README.md",
                 "share/doc/mgplan/docs/memory.md", "share/doc/mgplan/LICENSE"):
        check((prefix / file).stat().st_size > 1000, f"{file} is not installed")
    check(".SH COMMANDS" in (prefix / "share/man/man1/mgplan.1").read_text(), "the manual page")
    if (BUILD / "lib/libmgplan_cuda.so").exists():
        check((prefix / "lib/mgplan/libmgplan_cuda.so").exists(), "the CUDA module is not installed")


def check_examples(prefix, scratch):
    """Projects that know nothing of this tree but the prefix link the libraries and run."""
    lines = check_example("predict_from_code", prefix, scratch)
    check(len(lines) == 4 and lines[0].startswith("tp 1:") and lines[3].startswith("tp 8:"), f"the example printed {lines}")
    lines = check_example("rank_layouts", prefix, scratch)
    check(2 <= len(lines) <= 10 and lines[0].startswith("1: tp"), f"the example printed {lines}")


def check_example(name, prefix, scratch):
    """What the example prints; a model that does not exist is told with exit code 2."""
    example = scratch / name
    shutil.copytree(SOURCE / "examples" / name, example)
    output_of("cmake", "-G", "Ninja", "-S", example, "-B", example / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    output_of("cmake", "--build", example / "build")
    program = example / "build" / name
    lines = output_of(program).splitlines()
    answer = subprocess.run([program, "no-such-model"], capture_output=True, text=True, check=False)
    check(answer.returncode == 2 and "no-such-model" in answer.stderr, f"the example {name} on a bad model: {answer}")
    return lines


def check_packages(scratch):
    output_of("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", scratch / "packages")
    packages = scratch / "packages"
    archive, = packages.glob("*.tar.gz")
    output_of("tar", "-xzf", archive, "-C", scratch)
    folder = scratch / archive.name.removesuffix(".tar.gz")
    check_command(folder / "bin/mgplan")
    check((folder / "include/mgplan/plan/layout/layout.hpp").exists(), "the archive has no headers")
    programs, = packages.glob("mgplan_*.deb")
    development, = packages.glob("libmgplan-dev_*.deb")
    names = output_of("dpkg-deb", "--contents", programs)
    check("bin/mgplan\n" in names and "man1/mgplan.1" in names and "include/" not in names, f"files of {programs.name}:\n{names}")
    depends = output_of("dpkg-deb", "--field", programs, "Depends")
    check("libc6" in depends and "libyaml-cpp" in depends and "libfmt" in depends, f"{programs.name} depends on {depends}")
    names = output_of("dpkg-deb", "--contents", development)
    check("libmgplan_plan.a" in names and "mgplan-config.cmake" in names, f"files of {development.name}:\n{names}")
    unpacked = scratch / "unpacked"
    output_of("dpkg-deb", "--extract", programs, unpacked)
    program, = (path for path in unpacked.rglob("bin/mgplan"))
    check_command(program)


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        prefix = scratch / "prefix"
        output_of("cmake", "--install", BUILD, "--prefix", prefix)
        check_installed(prefix)
        check_examples(prefix, scratch)
        check_packages(scratch)
    print("installed, linked and packed")


os.environ["LC_ALL"] = "C.UTF-8"
main()
