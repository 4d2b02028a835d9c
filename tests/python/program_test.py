"""The module itself: its size and tags, how fast it is imported, threads and Ctrl-C; the command that comes with it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import mgplan
from conftest import SOURCE, without_clock

PYTHON = sys.executable
LONG = 'mgplan.plan("deepseek-v3", 16384)'  # half a minute of a core and more


def test_the_wheel_is_small_and_tagged():
    wheel = Path(os.environ["MGPLAN_WHEEL"])
    assert wheel.stat().st_size <= 15 << 20
    version = re.search(r"project\(mgplan VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    abi = "cp312-abi3" if sys.version_info >= (3, 12) else f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}"
    assert re.fullmatch(f"mgplan-{re.escape(version)}-{abi}-(many)?linux_.*[.]whl", wheel.name)
    assert mgplan.__version__ == version
    names = zipfile.ZipFile(wheel).namelist()
    assert {"mgplan/py.typed", "mgplan/__init__.pyi", "mgplan/_mgplan.pyi"} < set(names)
    inside = [name for name in names if not name.startswith((f"mgplan-{version}.dist-info/", "mgplan/"))]
    assert inside == [], "the wheel holds more than the package"


def test_its_import_loads_little():
    """What takes the time of an import, which bench_plan.py measures: the module's own and a few light ones of the standard library."""
    script = "import sys; before = set(sys.modules); import mgplan; print(*sorted(set(sys.modules) - before))"
    said = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in said.split()}
    assert loaded - set(sys.stdlib_module_names) == {"mgplan"}
    slow = {"asyncio", "dataclasses", "inspect", "logging", "pathlib", "socket", "subprocess", "tempfile", "unittest", "urllib"}
    assert not loaded & slow
    assert len(loaded) <= 40


def test_other_threads_run_during_a_search():
    done = threading.Event()
    began = time.monotonic()

    def search():
        mgplan.plan("mixtral-8x7b", 256, threads=1)
        done.set()

    thread = threading.Thread(target=search)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    seconds = time.monotonic() - began
    assert turns > 20 and turns > 50 * seconds, f"{turns} turns in {seconds:.1f} s"


def test_ctrl_c_ends_a_search():
    script = f"import mgplan\ntry:\n    print('begins', flush=True)\n    {LONG}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    process = subprocess.Popen([PYTHON, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n" and process.returncode == 0
    assert time.monotonic() - began < 15


def program(*words, **options):
    """The command of the wheel."""
    return subprocess.run([Path(PYTHON).parent / "mgplan", *words], capture_output=True, text=True, check=False, **options)


def test_the_command_comes_with_the_wheel(command):
    for words in (["plan", "--world", "16", "--model", "llama3-8b", "--format", "json"], ["--world", "2", "--model", "llama3-70b", "--format", "json"]):
        said, own = command(*words), program(*words)
        assert own.returncode == said.code and without_clock(own.stdout) == without_clock(said.out)
    for words in (["--version"], ["--help"], ["plan", "--help"], ["plan", "--world", "x"], [], ["no-command"], ["models"],
                  ["groups", "--world", "8", "--tp", "2"]):
        said, own = command(*words), program(*words)
        assert (own.returncode, own.stdout, own.stderr) == (said.code, said.out, said.err)
    module = subprocess.run([PYTHON, "-m", "mgplan", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == program("--version").stdout


def test_what_trains_is_refused_by_name():
    for name in ("run", "launch", "status", "verify", "calibrate", "rank", "record", "serve"):
        refused = program(name, "plan.json", "--device", "cuda")
        assert refused.returncode == 2 and refused.stdout == ""
        assert refused.stderr.startswith(f"mgplan: {name} ") and f"call ./mgplan {name}" in refused.stderr
        assert "only plans and predicts" in " ".join(program(name, "--help").stdout.split())
    assert program("completion", "bash").returncode == 0


def test_a_reader_that_is_gone_ends_the_command():
    reading, writing = os.pipe()
    process = subprocess.Popen([Path(PYTHON).parent / "mgplan", "groups", "--world", "65536"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    os.close(reading)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGPIPE and err == ""


def test_pips_own_build_knows_every_source_file(tmp_path):
    """Configured without the libraries of another build, the rooms are compiled: all that is needed, and nothing that trains."""
    cache = (Path(os.environ["MGPLAN_WHEEL_BUILD"]) / "CMakeCache.txt").read_text()
    nanobind = subprocess.run([PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", tmp_path / "nanobind",
                               re.search(r'"(nanobind==[^"]+)"', (SOURCE / "pyproject.toml").read_text())[1]], check=False)
    assert nanobind.returncode == 0, "nanobind could not be installed; the test needs PyPI"
    assert "MGPLAN_LIBRARIES_FROM:" in cache
    configured = subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE / "python", "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Release",
                                 f"-DPython_EXECUTABLE={PYTHON}", f"-Dnanobind_DIR={tmp_path / 'nanobind/nanobind/cmake'}"],
                                capture_output=True, text=True, check=False)
    assert configured.returncode == 0, configured.stderr
    inputs = subprocess.run(["ninja", "-C", tmp_path / "build", "-t", "inputs", "_mgplan"], capture_output=True, text=True, check=True).stdout
    for room in ("plan", "model", "formats", "simulator", "planner", "reports", "cli_planning"):
        assert f"libmgplan_{room}.a" in inputs
    assert "runtime/" not in inputs and "jobs/" not in inputs
