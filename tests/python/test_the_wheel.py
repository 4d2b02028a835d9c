"""Builds the wheel as pip does, installs it into a clean environment, and runs the tests beside this file there:

    test_the_wheel.py BUILD_FOLDER SOURCE_FOLDER MGPLAN [arguments for pytest]

The wheel links the libraries of BUILD_FOLDER instead of compiling them; a dry run sees that pip's own build knows every source file.
Needs PyPI: for scikit-build-core and nanobind, with which pip builds, and for what the tests use.
"""

import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

TOOLS = ["pytest==9.2.0", "mypy==2.4.1", "pandas==3.1.1", "matplotlib==3.11.2"]


def run(*command, what, **options):
    """Prints what took how long; on failure what the command said, and ends."""
    began = time.monotonic()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout[-8000:])
        sys.exit(f"{what} failed: {' '.join(map(str, command))}")
    return done.stdout


def install(python, *words, what):
    done = subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-4000:])
        sys.exit(f"{what} could not be installed; the tests of the Python package need PyPI (https://pypi.org) or a mirror (PIP_INDEX_URL)")


def main():
    build, source, program = (Path(word).resolve() for word in sys.argv[1:4])
    scratch = build / "python_package"
    shutil.rmtree(scratch, ignore_errors=True)
    began = time.monotonic()
    venv.create(scratch / "environment", with_pip=True)
    python = scratch / "environment/bin/python"
    install(python, *TOOLS, what=", ".join(TOOLS))
    print(f"environment: {time.monotonic() - began:.1f} s", flush=True)

    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # What is imported is compiled once and outside the tree: pip would compile all of pandas, which takes longer than its tests.
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPYCACHEPREFIX": str(scratch / "compiled")}
    settings = {"build-dir": scratch / "build", "cmake.define.MGPLAN_LIBRARIES_FROM": build}
    run(python, "-m", "pip", "wheel", "--no-deps", source, "--wheel-dir", scratch,
        *(f"--config-settings={name}={value}" for name, value in settings.items()), what="wheel (needs PyPI)", env=environment)
    wheels = list(scratch.glob("mgplan-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"pip made {wheels}")
    install(python, "--no-index", "--no-deps", str(wheels[0]), what=wheels[0].name)

    environment |= {"MGPLAN_PROGRAM": str(program), "MGPLAN_WHEEL": str(wheels[0]), "MGPLAN_WHEEL_BUILD": str(scratch / "build")}
    began = time.monotonic()
    code = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", f"--rootdir={source}",
                           str(source / "tests/python"), *sys.argv[4:]], env=environment, cwd=scratch, check=False).returncode
    print(f"pytest: {time.monotonic() - began:.1f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
