"""A tree with the scripts of tests/gpu and a faked card, for tests of them.

GPU_ALL, where it is given, is the real program, which finds no GPU here."""

import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "accuracy")]
import bundle as bundles  # noqa: E402
import runner as runners  # noqa: E402
from fake_card import FAKE_PROGRAM, FAKE_SANITIZER, FAKE_SMI, MEASURED, TORCH, executable  # noqa: E402

MGPLAN, REAL = "", ""


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="mgplan-gpu-scripts-"))
        cls.tree = cls.folder / "tree"  # as it is carried: a copy of the scripts, and sources to tell trees apart
        shutil.copytree(HERE, cls.tree / "tests" / "gpu", ignore=shutil.ignore_patterns("__pycache__", "*.cpp"))
        (cls.tree / "tests" / "gpu" / "torch_reference.py").write_text(TORCH, encoding="utf-8")
        (cls.tree / "plan").mkdir()
        (cls.tree / "plan" / "a.cpp").write_text("int a;\n", encoding="utf-8")
        cls.build = cls.tree / "build" / "portable" / "gpu"
        executable(cls.build / "bin" / "gpu_all", FAKE_PROGRAM)
        executable(cls.folder / "bin" / "nvidia-smi", FAKE_SMI)
        executable(cls.folder / "bin" / "compute-sanitizer", FAKE_SANITIZER)
        for name, values in MEASURED.items():
            (cls.folder / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")
        small = "--model tiny-llama --seq 32 --global-batch 2 --micro-batch 1 --precision fp32 --cluster dgx-h100"
        plans = []
        for name, words, rank, world in (("tiny", "--world 4 --tp 2 --pp 2", 3, 4), ("whole", "--world 1", -1, 1),
                                         ("parity-tp2", "--world 2 --tp 2", -1, 2), ("parity-pp2", "--world 2 --pp 2", -1, 2),
                                         ("parity-dp2", "--world 2 --tp 1 --pp 1 --cp 1", -1, 2)):
            file = cls.build / "plans" / f"{name}.plan.json"
            file.parent.mkdir(exist_ok=True)
            subprocess.run([MGPLAN, *words.split(), *small.split(), "--save-plan", file], check=True, capture_output=True)
            plans.append({"name": name, "file": file.name, "rank": rank, "world": world, "first": name == "tiny"})
        (cls.build / "plans" / "plans.json").write_text(json.dumps(plans), encoding="utf-8")
        cls.about = {"sources": bundles.sources_id(cls.tree), "commit": "0123abc", "architectures": ["90-real"],
                     "libraries": {"cuda": "13.0", "cublas_lt": "13.1.0", "cudnn": "9.19.0", "nccl": "2.28.9"}}
        cls.write_bundle()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def write_bundle(cls, **changes):
        (cls.build / "bundle.json").write_text(json.dumps({**cls.about, **changes}), encoding="utf-8")

    def run_script(self, *words, out="out", **fakes):
        """Exit code, what it said, and its results."""
        folder = self.folder / out
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "OUT": str(folder), "FAKE": str(self.folder),
                       "REAL_MGPLAN": MGPLAN, "OMP_NUM_THREADS": "1", **fakes}
        done = subprocess.run([self.tree / "tests" / "gpu" / "run", *map(str, words)], capture_output=True, text=True, env=environment,
                              timeout=100)
        file = folder / "results.json"
        return done.returncode, done.stdout + done.stderr, json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    def tearDown(self):
        self.forget()

    def forget(self):
        """As on a fresh machine, to which nothing is carried, of a tree into which nothing was taken."""
        shutil.rmtree(self.tree / "build" / "gpu-results", ignore_errors=True)
        shutil.rmtree(self.tree / "docs", ignore_errors=True)

    def take(self, out, expect=0):
        done = subprocess.run([self.tree / "tests" / "gpu" / "take", self.folder / out, "--tree", self.tree], capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def verdict(self, part, command="correctness", **fakes):
        self.forget()
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            code, said, results = self.run_script(command, "--parts", part, out=Path(out).name, **fakes)
            self.assertEqual(code, 1, said)
            self.assertIn(f"FAILED: {part}", said)
            return results["parts"][part]

    def kept_output(self):
        return lzma.decompress((self.tree / "build" / "gpu-results" / "h100-80gb-hbm3" / "output.txt.xz").read_bytes()).decode()

    def runner(self, seconds):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        runner = runners.Runner(folder, self.build, {"gpu": "NVIDIA H100", "bundle": self.about, "parts": {}}, seconds)
        runner.kept = Path(tempfile.mkdtemp(dir=self.folder))
        self.addCleanup(runner.log.close)
        self.addCleanup(runner.scratch.cleanup)
        runner.note = lambda text: None
        return runner


def main():
    global MGPLAN, REAL
    MGPLAN, REAL = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    unittest.main(argv=sys.argv[:1], verbosity=int(os.environ.get("V", "1")))
