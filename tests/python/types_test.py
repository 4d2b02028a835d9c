"""The stubs say what there is: as the command declares its options, and as mypy reads them."""

import os
import subprocess
import sys
from pathlib import Path

import mgplan
from conftest import SOURCE

RIGHT = '''
import mgplan
from pathlib import Path

ranking = mgplan.plan("llama3-8b", 16, tp=[1, 2], sequence_parallel=True, max_memory="70GiB", recompute="none")
best = ranking.best
if best is not None:
    seconds: float = best.iteration_seconds
    text: str = mgplan.export(best, to="megatron-yaml").text
first: mgplan.Plan = ranking[0]
rest: list[mgplan.Plan] = ranking[1:]
fits: bool = mgplan.simulate({"model_type": "llama"}, 16, {"preset": "dgx-h100", "gpus_per_node": 4}, pp=2, kind="zb-h1").fits
legal: bool = mgplan.check(Path("train.sh"), world=64, top=0).legal
try:
    mgplan.groups(8, tp=2)["groups"]
except mgplan.InputError as error:
    print(error.field, error.way_out, error.problems[0].rule)
'''
WRONG = {
    'mgplan.plan("llama3-8b", 16, tpp=2)': 'Unexpected keyword argument "tpp"',
    'mgplan.simulate("llama3-8b", 16, tp=[1, 2])': 'incompatible type "list[int]"',
    'mgplan.export("p.json", to="nemo")': "incompatible type",
    'mgplan.plan("llama3-8b")': 'Missing positional argument "world"',
    'mgplan.plan("llama3-8b", 16)[0].layuot': 'has no attribute "layuot"',
}


def mypy(folder, text):
    (folder / "example.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", "example.py"], cwd=folder,
                          capture_output=True, text=True, check=False)
    return done.stdout


def test_what_is_right_passes_strictly(tmp_path):
    assert mypy(tmp_path, RIGHT).startswith("Success")


def test_what_is_wrong_is_found(tmp_path):
    said = mypy(tmp_path, "import mgplan\n" + "\n".join(WRONG) + "\n").splitlines()
    for line, complaint in enumerate(WRONG.values(), start=2):
        assert any(each.startswith(f"example.py:{line}:") and complaint in each for each in said), (line, complaint, said)


def test_the_package_itself_is_typed(tmp_path):
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "-p", "mgplan"], capture_output=True, text=True,
                          check=False, cwd=SOURCE / "python")
    assert done.stdout.startswith("Success"), done.stdout


def test_the_stub_is_what_the_options_say():
    written = subprocess.run([sys.executable, SOURCE / "python/write_stub.py"], capture_output=True, text=True, check=True).stdout
    assert (Path(mgplan.__file__).parent / "__init__.pyi").read_text() == written, (
        "options changed; write the stub anew: " + f"{os.path.relpath(sys.executable, SOURCE)} python/write_stub.py > python/mgplan/__init__.pyi")
