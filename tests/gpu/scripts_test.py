#!/usr/bin/env python3
"""tests/gpu/pack, run and take with a faked card: scripts_test.py MGPLAN [GPU_ALL]

GPU_ALL is the real program, which finds no GPU here."""

import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "accuracy")]
import bundle as bundles  # noqa: E402
import make_bundle  # noqa: E402
import own  # noqa: E402
import parts as catalogue  # noqa: E402
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
            plans.append({"name": name, "file": file.name, "rank": rank, "world": world})
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
        shutil.rmtree(self.tree / "build" / "gpu-results", ignore_errors=True)  # what another test took

    def take(self, out, expect=0):
        done = subprocess.run([self.tree / "tests" / "gpu" / "take", self.folder / out, "--tree", self.tree], capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_three_commands_fill_the_tree(self):
        for command in ("correctness", "speed", "prediction"):
            code, said, results = self.run_script(command, out=command)
            self.assertEqual(code, 0, said)
            self.assertEqual(set(results["parts"]) - set(self.parts_before(command)), set(catalogue.COMMANDS[command](self.build))
                             - set(self.parts_before(command)))
            self.assertLessEqual(len(list((self.folder / command).iterdir())), 3, "few files come back")
            self.take(command)
        # A second call has nothing left to do.
        code, said, _ = self.run_script("correctness", out="correctness")
        self.assertEqual(code, 0)
        self.assertIn("memcheck: passed earlier", said)
        code, said, _ = self.run_script("speed", out="speed")
        self.assertEqual(code, 0)
        self.assertRegex(said, r"layers: passed earlier\n(?s:.*)beside_torch: passed in 0 s: 1.10 times", "what judges others does so anew")

        pages = list((self.tree / "docs" / "measurements").glob("*-h100-80gb-hbm3.md"))
        self.assertEqual(len(pages), 1)
        page = pages[0].read_text(encoding="utf-8")
        for words in ("| fp32 | passed | 0123abc |", "| nccl_tp2 | passed |", "| 8 x 8 x 8 |  | 700 | 680 | +2.9 % | 710 |", "| PyTorch, graphs | 11.0 |", "Beside the best PyTorch: 1.10 times", "| context | 500,000,000 |",
                      "| rank_tiny |", "matrix products", "| whole | full_iteration |", "four groups, of both ranks | + 1,000"):
            self.assertIn(words, page)
        cluster = self.tree / "configs" / "clusters" / "h100-80gb-hbm3-measured.json"
        values = json.loads(cluster.read_text(encoding="utf-8"))["calibration"]["parameters"]
        self.assertEqual(values["driver_bytes"]["value"], 500_000_000 - (4 << 20))
        self.assertEqual(values["module_bytes"]["value"], 300_000_000)
        shown = subprocess.run([MGPLAN, "--world", "2", "--model", "tiny-llama", "--precision", "fp32", "--cluster", cluster],
                               capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)

        records = own.load(self.tree / "tests" / "accuracy" / "data")
        self.assertEqual([(record["id"], record["world"], record["rank"]) for record in records],
                         [("own-h100-80gb-hbm3-tiny-rank3", 4, 3)])
        self.assertEqual(records[0]["bytes"], records[0]["predicted_bytes"])
        lines = "\n".join(own.section(records))
        self.assertIn("| own-h100-80gb-hbm3 | 1 |", lines)
        self.assertIn("| tiny | 3 | NVIDIA H100 80GB HBM3 |", lines)

    def parts_before(self, command):
        names = list(catalogue.COMMANDS)
        return [part for each in names[:names.index(command)] for part in catalogue.COMMANDS[each](self.build)]

    def verdict(self, part, command="correctness", **fakes):
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            code, said, results = self.run_script(command, "--parts", part, out=Path(out).name, **fakes)
            self.assertEqual(code, 1, said)
            self.assertIn(f"FAILED: {part}", said)
            return results["parts"][part]

    def test_nothing_passes_that_did_not_run(self):
        for fake, words in (("skip", "1 tests were skipped although there is a GPU: libcublasLt.so.13: cannot open shared object file"),
                            ("some", "1 tests were skipped"), ("fail", "1 of 2 tests failed, One.Test first"), ("none", "no test ran"),
                            ("mute", "it did not say how many tests passed"), ("lie", "exit code 3"),
                            ("crash", "ended by signal 11; last: [ RUN      ] One.Test; in One.Test")):
            part = self.verdict("fp32", FAKE_TESTS=fake)
            self.assertEqual(part["status"], "failed")
            self.assertIn(words, part["why"], fake)
        self.assertIn("cannot open shared object file", self.verdict("card", FAKE_TESTS="loader")["why"])
        self.assertIn("memcheck found 2 errors", self.verdict("memcheck", FAKE_TESTS="invalid")["why"])
        self.assertIn("printed no summary", self.verdict("memcheck", FAKE_TESTS="blind")["why"])
        self.assertIn("run the command speed first", self.verdict("rank_tiny", "prediction")["why"])

    def test_the_real_program_fails_beside_a_faked_card(self):
        if not REAL:
            self.skipTest("gpu_all was not built")
        self.assertEqual(subprocess.run([REAL, "mgplan", "--version"], capture_output=True).returncode, 0)
        self.assertEqual(subprocess.run([REAL, "nonsense"], capture_output=True).returncode, 2)
        done = subprocess.run([REAL, "test", "--gtest_filter=GpuMemory.*", "--gtest_color=no"], capture_output=True, text=True)
        if done.returncode == 0:
            self.skipTest("there is a GPU here")
        self.assertEqual(done.returncode, 77, done.stdout)
        verdict = catalogue.judge_tests(done.returncode, done.stdout, 60)
        self.assertRegex(verdict.why, "^[1-9][0-9]* tests were skipped although there is a GPU: .+")
        none = subprocess.run([REAL, "test", "--gtest_filter=Nothing.*"], capture_output=True, text=True)
        self.assertEqual(none.returncode, 1, "a filter that leaves no test is no success")
        bench = subprocess.run([REAL, "bench", "--card", self.folder / "real-card.json"], capture_output=True, text=True)
        self.assertEqual(bench.returncode, 77)

    def test_every_test_of_the_program_is_in_a_part(self):
        if not REAL:
            self.skipTest("gpu_all was not built")
        listed = subprocess.run([REAL, "test", "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        names, suite = [], ""
        for line in listed.splitlines():
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                names.append(suite + word)
            elif word.endswith("."):
                suite = word
        self.assertGreater(len(names), 50)
        filters = [pattern for part in catalogue.correctness(self.build).values() if part.tests for pattern in part.tests.split(":")]
        missing = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in filters)]
        self.assertEqual(missing, [], "no part of tests/gpu/run runs these")
        idle = [pattern for pattern in filters if not any(fnmatch.fnmatchcase(name, pattern) for name in names)]
        self.assertEqual(idle, [], "these filters find no test")

    def test_fp8_is_left_out_on_cards_before_ada_and_refused_by_name(self):
        self.write_bundle(architectures=["80"])
        try:
            code, said, results = self.run_script("correctness", "--parts", "fp32,fp8", out="ampere", FAKE_COMPUTE="8.0")
            self.assertEqual((code, results), (2, None), said)
            self.assertIn("has compute capability 8.0, and fp8 needs 8.9; leave it out of --parts", said)
            code, said, results = self.run_script("correctness", out="ampere", FAKE_COMPUTE="8.0")
            self.assertEqual(code, 0, said)
            self.assertIn("not for compute capability 8.0: fp8", said)
            self.assertNotIn("fp8", results["parts"])
        finally:
            self.write_bundle()

    def test_a_bundle_without_plans_is_no_prediction(self):
        plans = self.build / "plans" / "plans.json"
        kept = plans.read_text(encoding="utf-8")
        try:
            for text in ("", "[]", json.dumps([each for each in json.loads(kept) if each["name"].startswith("parity")])):
                plans.write_text(text, encoding="utf-8")
                code, said, _ = self.run_script("prediction", out="planless")
                self.assertEqual(code, 2, said)
                self.assertIn("plans.json names no plan to judge; make the bundle again with tests/gpu/pack", said)
        finally:
            plans.write_text(kept, encoding="utf-8")

    def test_whatever_the_program_includes_makes_another_bundle(self):
        of_tests = {Path(line.split('"')[1]).parent for path in HERE.glob("*.[ch]pp") for line in path.read_text(encoding="utf-8").splitlines()
                    if line.startswith('#include "')}
        for folder in of_tests:
            self.assertTrue(any(folder == Path(known) or Path(known) in folder.parents for known in bundles.SOURCE_FOLDERS), folder)
        self.assertLessEqual({"CMakeLists.txt", "CMakePresets.json"}, set(bundles.SOURCE_FILES))
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "tests" / "support").mkdir(parents=True)
            known = {bundles.sources_id(root)}
            for path in ("CMakeLists.txt", "CMakePresets.json", "tests/support/small_training.hpp"):
                (root / path).write_text("one", encoding="utf-8")
                known.add(bundles.sources_id(root))
            self.assertEqual(len(known), 4)

    def test_what_had_no_time_fails_and_is_run_by_the_next_call(self):
        code, said, results = self.run_script("correctness", "--parts", "memory,bf16", "--seconds", "11", out="short", FAKE_TESTS="hang")
        self.assertEqual(code, 1, said)
        self.assertEqual([results["parts"][name]["status"] for name in ("memory", "bf16")], ["failed", "left out"])
        self.assertIn("not done within 11 s", results["parts"]["memory"]["why"])
        self.assertIn("FAILED: memory (failed), bf16 (left out)", said)
        code, said, results = self.run_script("correctness", "--parts", "memory,bf16", out="short")
        self.assertEqual(code, 0, said)
        self.assertLess(said.index("bf16: passed"), said.index("memory: passed"), "what failed comes behind what nothing is known of")

    def runner(self, seconds):
        loader = importlib.machinery.SourceFileLoader("gpu_run", str(HERE / "run"))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
        loader.exec_module(module)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        runner = module.Runner(folder, self.build, {"gpu": "NVIDIA H100", "bundle": self.about, "parts": {}}, seconds)
        self.addCleanup(runner.output.close)
        self.addCleanup(runner.log.close)
        self.addCleanup(runner.scratch.cleanup)
        runner.note = lambda text: None
        return runner

    def test_a_part_is_not_begun_with_too_little_time_and_ends_by_its_share(self):
        given = []

        def work(runner, seconds):
            given.append(seconds)
            return catalogue.Verdict()
        self.assertEqual(catalogue.Part(60, work).least, 20)
        runner = self.runner(44)
        runner.run("short", catalogue.Part(90, work, least=45))
        short = runner.results["parts"]["short"]
        self.assertEqual((short["status"], given), ("left out", []))
        self.assertRegex(short["why"], "^4[34] s were left of 44, and it is not begun with less than 45; call again$")
        # What failed before keeps its verdict, on these sources.
        failed = {"status": "failed", "why": "bf16 differs", "sources": self.about["sources"]}
        runner.results["parts"] = {"ours": dict(failed), "others": {**failed, "sources": "of another tree"}}
        for name in ("ours", "others"):
            runner.run(name, catalogue.Part(90, work, least=45))
        self.assertEqual([(part["status"], part["why"] == "bf16 differs") for part in runner.results["parts"].values()],
                         [("failed", True), ("left out", False)])
        runner = self.runner(100)
        runner.run("cut", catalogue.Part(90, work, until=0.45))
        runner.run("later", catalogue.Part(90, work))
        self.assertTrue(44 < given[0] <= 45 and given[1] == 90, given)
        runner.run("early", catalogue.Part(90, work, until=0.25))
        self.assertEqual(runner.results["parts"]["early"]["status"], "left out")
        # Sanitizers and PyTorch are slow to begin; calibration goes on where it was; what only judges needs no time.
        least = {name: part.least for name, part in {**catalogue.correctness(self.build), **catalogue.speed(self.build)}.items()}
        self.assertEqual([least[name] for name in ("fp32", "memcheck", "torch_eager", "torch_graphs", "calibration", "beside_torch")],
                         [20, 45, 30, 60, 20, 0])

    def test_a_borrowed_card_gets_what_tells_most_first_and_the_rest_in_a_second_call(self):
        names = [name for _, group in catalogue.FIRST for name in group]
        parts = catalogue.first(self.build)
        self.assertEqual((list(parts), [part.until for part in parts.values()]), (names, sorted(part.until for part in parts.values())))
        self.assertEqual((names[0], names[-1], parts["calibration"].until), ("card", "calibration", 1.0))
        code, said, results = self.run_script("first", "--seconds", "570", out="first")
        self.assertEqual(code, 0, said)
        self.assertEqual(list(results["parts"]), names)
        self.take("first")
        code, said, results = self.run_script("rest", out="rest")
        self.assertEqual(code, 0, said)
        for name in names:
            self.assertIn(f"{name}: passed earlier", said)
        self.assertEqual(set(results["parts"]), {name for command in ("correctness", "speed", "prediction")
                                                 for name in catalogue.COMMANDS[command](self.build)})
        order = list(catalogue.rest(self.build))
        self.assertEqual(order[:len(names)], names)
        self.assertLess(order.index("rank_tiny"), order.index("torch_compiled"))
        self.assertLess(order.index("torch_compiled"), order.index("fp64"))
        self.assertEqual(order[-4:], ["memcheck", "racecheck", "initcheck", "memcheck_bf16"], "the slowest, and of the least news")

    def test_what_failed_comes_behind_what_is_new_and_judges_come_last(self):
        results = {"bundle": {"sources": "now"}, "parts": {"card": {"status": "failed", "sources": "now"}, "products": {"status": "failed",
                   "sources": "before"}, "calibration": {"status": "failed", "sources": "now"}}}
        parts = catalogue.speed(self.build)
        expected = [name for name in parts if name not in ("card", "beside_torch")] + ["card", "beside_torch"]
        self.assertEqual(list(catalogue.in_order(parts, results)), expected)

    def test_sanitizers_look_at_our_kernels_alone_where_libraries_would_be_reported(self):
        words = self.folder / "sanitizer.words"

        def options(part, **fakes):
            words.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as out:
                code, said, _ = self.run_script("correctness", "--parts", part, out=Path(out).name, **fakes)
            self.assertEqual(code, 0, said)
            return words.read_text(encoding="utf-8").split()
        ours, calls = ["--kernel-name", "kns=mgplan"], ["--report-api-errors", "no"]
        for part, tool, dtype, filtered, fake in (("memcheck", "memcheck", "fp32", False, ""), ("racecheck", "racecheck", "fp32", True, ""),
                                                  ("initcheck", "initcheck", "fp32", True, ""), ("initcheck", "initcheck", "fp32", False, "old"),
                                                  ("memcheck_bf16", "memcheck", "bf16", False, "")):
            got = options(part, FAKE_SANITIZER=fake)
            self.assertEqual(got[:2], ["--tool", tool])
            self.assertEqual([got[i:i + 2] for i, word in enumerate(got) if word in (ours[0], calls[0])], [calls] + [ours] * filtered, part)
            self.assertEqual(got[-1], f"--gtest_filter=*GpuOps.AgreeWithTheCpu*/{dtype}:*GpuFp8Ops*/{dtype}:*GpuFp8Blocks*/{dtype}")

    def test_results_of_two_kinds_of_cards_stand_beside_each_other(self):
        self.run_script("correctness", "--parts", "fp32", out="h100")
        self.take("h100")
        code, said, results = self.run_script("correctness", "--parts", "fp32", out="h200", FAKE_NAME="NVIDIA H200", FAKE_TESTS="fail")
        self.assertEqual((code, results["gpu"]), (1, "NVIDIA H200"), said)
        self.take("h200")
        kept = self.tree / "build" / "gpu-results"
        self.assertEqual({name: json.loads((kept / name / "results.json").read_text(encoding="utf-8"))["parts"]["fp32"]["status"]
                          for name in ("h100-80gb-hbm3", "h200")}, {"h100-80gb-hbm3": "passed", "h200": "failed"})
        self.assertEqual(len(list((self.tree / "docs" / "measurements").glob("*-h200.md"))), 1)
        code, said, _ = self.run_script("correctness", "--parts", "fp32", out="h100-again", FAKE_TESTS="fail")
        self.assertIn("fp32: passed earlier", said)
        code, said, results = self.run_script("correctness", "--parts", "fp32", "--earlier", kept / "h200" / "results.json", out="mixed")
        self.assertEqual((code, results), (2, None), said)
        self.assertIn("results of NVIDIA H200 and of NVIDIA H100 80GB HBM3 do not belong together; leave the earlier ones out of --earlier", said)
        # Without OUT they go where take keeps them.
        code, said, _ = self.run_script("correctness", "--parts", "bf16", out="", OUT="", FAKE_NAME="NVIDIA H200")
        self.assertEqual(code, 0, said)
        self.assertEqual(set(json.loads((kept / "h200" / "results.json").read_text(encoding="utf-8"))["parts"]), {"fp32", "bf16"})

    def test_a_calibration_that_was_cut_short_is_gone_on_with_on_the_next_machine(self):
        words, kept = self.folder / "calibrate.words", self.tree / "build" / "gpu-results" / "h100-80gb-hbm3"
        name = f"cluster-{self.about['sources']}.json.part"

        def calibrate(out, code, calls, **fakes):
            words.unlink(missing_ok=True)
            got, said, results = self.run_script("speed", "--parts", "calibration", out=out, **fakes)
            self.assertEqual(got, code, said)
            self.assertEqual(["--resume" in line for line in words.read_text(encoding="utf-8").splitlines()], calls)
            self.take(out)
            return results
        results = calibrate("cut1", 1, [False], FAKE_CALIBRATE="cut")
        self.assertEqual(results["parts"]["calibration"]["status"], "failed")
        self.assertTrue((kept / name).exists())
        (kept / "cluster-other.json.part").write_text("of other sources", encoding="utf-8")
        calibrate("cut2", 1, [True], FAKE_CALIBRATE="cut")  # $OUT is another, empty folder
        self.assertEqual([path.name for path in kept.glob("*.part")], [name])
        results = calibrate("cut3", 0, [True])
        self.assertTrue(results["cluster"]["calibration"]["complete"])
        self.assertEqual(list(kept.glob("*.part")) + list((self.folder / "cut3").glob("*.part")), [])
        # What cannot be gone on with is begun anew.
        shutil.rmtree(kept)
        kept.mkdir(parents=True)
        (kept / name).write_text("{}", encoding="utf-8")
        calibrate("anew", 0, [True, False])

    def test_slower_layers_than_wanted_beside_pytorch_fail(self):
        parts = {"layers": {"tokens_per_second": 1600.0}, **{f"torch_{kind}": {"layers": {"tokens_per_second": rate}} for kind, rate in
                                                             zip(catalogue.TORCH, (1000.0, 1200.0, 1450.0, 1400.0))}}

        class Runner:
            results = {"parts": {name: {"data": data} for name, data in parts.items()}}
        verdict = catalogue.beside_torch(Runner, 10)
        self.assertEqual((verdict.why, verdict.summary), ("", "1.10 times torch_compiled, 1600 and 1450 tokens/s"))
        Runner.results["parts"]["torch_graphs"]["data"]["layers"]["tokens_per_second"] = 1500.0
        self.assertEqual(catalogue.beside_torch(Runner, 10).why, "1.07 times torch_graphs, 1600 and 1500 tokens/s: less than 1.1 times")
        del Runner.results["parts"]["torch_graphs"]
        Runner.results["parts"]["torch_eager"]["data"] = None
        verdict = catalogue.beside_torch(Runner, 10)
        self.assertEqual((verdict.why, verdict.summary),
                         ("", "1.10 times torch_compiled, 1600 and 1450 tokens/s (torch_eager, torch_graphs measured nothing)"))
        for kind in ("cudnn", "compiled"):
            del Runner.results["parts"][f"torch_{kind}"]
        self.assertEqual(catalogue.beside_torch(Runner, 10).why,
                         "torch_eager, torch_cudnn, torch_compiled, torch_graphs measured nothing to compare")
        Runner.results["parts"]["torch_eager"]["data"] = {"layers": {"tokens_per_second": 1000.0}}
        Runner.results["parts"]["layers"]["data"] = None
        self.assertIn("layers, ", catalogue.beside_torch(Runner, 10).why)

    def test_the_newest_verdict_of_a_judge_counts(self):
        def results(status, again):
            return {"gpu": "a", "parts": {"part": {"status": status, "again": again, "sources": "now"}}}
        self.assertEqual(bundles.merged(results("passed", True), results("failed", True))["parts"]["part"]["status"], "failed")
        self.assertEqual(bundles.merged(results("passed", False), results("failed", False))["parts"]["part"]["status"], "passed")

    def test_a_missed_prediction_and_other_libraries_fail(self):
        self.run_script("speed", "--parts", "calibration", out="calibrated")
        code, said, _ = self.run_script("prediction", "--parts", "rank_tiny", "--earlier", self.folder / "calibrated" / "results.json",
                                        out="missed", FAKE_TOLERANCE="0")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"rank_tiny: FAILED in \d+ s: predicted [0-9.]+ ms, measured [0-9.]+ ms, error [+-]")
        try:
            self.write_bundle(libraries={**self.about["libraries"], "cudnn": "8.9.7"})
            self.assertIn("cudnn is version 9.19.0 here, and the bundle was built for 8.9.7", self.verdict("card")["why"])
        finally:
            self.write_bundle()

    def test_results_of_other_sources_are_kept_and_do_not_count_as_done(self):
        part = {"status": "passed", "seconds": 1, "why": "", "at": "2026-01-02T00:00:00", "clocks": "", "data": None, "sources": "old",
                "commit": "old"}
        (self.folder / "rebuilt").mkdir()
        results = {"version": 1, "gpu": "NVIDIA H100 80GB HBM3", "card": {}, "bundle": {}, "parts": {"fp32": part, "bf16": part}}
        file = self.folder / "rebuilt" / "results.json"
        file.write_text(json.dumps(results), encoding="utf-8")
        code, said, now = self.run_script("correctness", "--parts", "fp32", out="rebuilt", FAKE_TESTS="fail")
        self.assertEqual(code, 1, said)
        self.assertEqual([now["parts"][name]["status"] for name in ("fp32", "bf16")], ["failed", "passed"])
        file.write_text(json.dumps({**results, "gpu": "NVIDIA H200"}), encoding="utf-8")
        code, said, _ = self.run_script("correctness", "--parts", "fp32", out="rebuilt")
        self.assertEqual((code, "do not belong together" in said), (2, True), said)

    def test_bad_input_is_one_message_and_never_a_pass(self):
        def refused(code, words, *arguments, command="correctness", **fakes):
            got, said, results = self.run_script(command, *arguments, out="refused", **fakes)
            self.assertEqual(got, code, said)
            self.assertIn(words, said)
            self.assertEqual(len(said.strip().splitlines()), 1, said)
            self.assertIsNone(results)
        refused(77, "there is no GPU here", FAKE_CARD="none")
        refused(2, "has compute capability 8.0, and the bundle holds code for 90-real alone", FAKE_COMPUTE="8.0")
        refused(2, "holds no bundle", "--bundle", self.folder)
        refused(2, "holds no bundle", "--list", "--bundle", self.folder, command="prediction")
        refused(2, "correctness has no part nonsense; it has card, fp32", "--parts", "nonsense")
        refused(2, "cannot be read", "--earlier", self.folder / "nowhere.json")
        source = self.tree / "plan" / "a.cpp"
        source.write_text("int b;\n", encoding="utf-8")
        try:
            refused(2, "was built from other sources")
        finally:
            source.write_text("int a;\n", encoding="utf-8")
        for text, words in (("", "is no JSON"), ('{"version": 9}', "is no result of tests/gpu/run")):
            (self.folder / "broken").mkdir(exist_ok=True)
            (self.folder / "broken" / "results.json").write_text(text, encoding="utf-8")
            self.assertIn(words, self.take("broken", expect=2))

    def test_pack_builds_with_what_it_needs_and_says_what_is_missing(self):
        # Only the compilers are faked: what a build leaves is written by "ninja".
        tree = self.folder / "clone"
        shutil.copytree(self.tree / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "cmake").mkdir()
        shutil.copy(ROOT / "cmake" / "setup.sh", tree / "cmake")
        tools = self.folder / "tools"
        executable(tools / "cmake", f"""#!/bin/sh
echo "$@" >'{tree}/cmake.words'
case $FAKE_BUILD in cuda) echo 'CMake Error: MGPLAN_WITH_CUDA is on, but the compiler nvcc was not found' >&2; exit 1 ;; esac
mkdir -p build/portable/CMakeFiles
echo "CMAKE_HOME_DIRECTORY:INTERNAL={tree}
MGPLAN_CUDA_ARCHITECTURES:STRING=80-real" >build/portable/CMakeCache.txt
""")
        executable(tools / "ninja", f"""#!/bin/sh
mkdir -p '{tree}/build/portable/gpu/bin'
printf '#!/bin/sh\nshift\nexec "{MGPLAN}" "$@"\n' >'{tree}/build/portable/gpu/bin/gpu_all'
chmod +x '{tree}/build/portable/gpu/bin/gpu_all'
echo '[1/1] Linking'
""")
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        pack = [tree / "tests" / "gpu" / "pack", "--architectures", "80-real"]
        done = subprocess.run(pack, capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = (tree / "cmake.words").read_text(encoding="utf-8")
        for word in ("--preset portable", "-DMGPLAN_WITH_CUDA=on", "-DMGPLAN_WITH_CUDNN=on", "-DMGPLAN_WITH_NCCL=on",
                     "-DMGPLAN_WITH_OPENBLAS=on", "-DMGPLAN_CUDA_ARCHITECTURES=80-real"):
            self.assertIn(word, words)
        self.assertTrue((tree / "build" / "portable" / "gpu.tar.xz").exists())
        self.assertRegex(done.stdout, r"build/portable/gpu\.tar\.xz: \d+\.\d MB, with the tree \d+\.\d MiB; commit ")
        for command in ("first --seconds 570", "rest", "correctness", "speed", "prediction"):
            self.assertIn(f"tests/gpu/run {command}", done.stdout)
        self.assertRegex(done.stderr, r"done in \d+ min \d+ s, \d+ s of processor time\n")
        done = subprocess.run(pack, capture_output=True, text=True, env={**environment, "FAKE_BUILD": "cuda"})
        self.assertEqual(done.returncode, 4)
        self.assertIn("the compiler nvcc was not found", done.stderr)

    def test_code_runs_on_cards_of_its_major_version_and_ptx_on_later_ones(self):
        for architecture, cards in (("90-real", {90}), ("80-real", {80, 86, 89}), ("90a-real", {90}), ("90", {90, 100, 120}),
                                    ("80-virtual", {80, 86, 89, 90, 100, 120}), ("86-real", {86, 89})):
            self.assertEqual({card for card in (75, 80, 86, 89, 90, 100, 120) if bundles.runs_on(architecture, card)}, cards, architecture)

    def test_pack_refuses_what_is_too_large_and_leaves_no_link(self):
        build = self.folder / "packed"
        executable(build / "gpu" / "bin" / "gpu_all", f'#!/bin/sh\nshift\nexec "{MGPLAN}" "$@"\n')
        (build / "gpu" / "lib").mkdir()
        (build / "gpu" / "lib" / "libreal.so.1.2").write_bytes(b"code")
        (build / "gpu" / "lib" / "libreal.so.1").symlink_to("libreal.so.1.2")
        (build / "CMakeCache.txt").write_text("MGPLAN_CUDA_ARCHITECTURES:STRING=90-real;100\n", encoding="utf-8")
        pack = [sys.executable, self.tree / "tests" / "gpu" / "make_bundle.py", build]
        done = subprocess.run(pack, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tests/gpu/run correctness", done.stdout)
        with tarfile.open(build / "gpu.tar.xz") as tar:
            names = {member.name for member in tar.getmembers()}
            self.assertFalse([member.name for member in tar.getmembers() if not member.isfile()])
            about = json.load(tar.extractfile("gpu/bundle.json"))
            plans = json.load(tar.extractfile("gpu/plans/plans.json"))
        self.assertIn("gpu/lib/libreal.so.1", names)
        self.assertEqual(about["architectures"], ["90-real", "100"])
        self.assertEqual(about["sources"], self.about["sources"])
        self.assertEqual({plan["name"] for plan in plans if plan["rank"] >= 0}, set(make_bundle.RANKS))
        self.assertIn("nemotron-h-8b-pp4", make_bundle.RANKS)  # a hybrid
        self.assertTrue({f"gpu/plans/{plan['file']}" for plan in plans} <= names)
        smaller = "import sys; sys.path.insert(0, sys.argv[1]); import make_bundle as m; m.MOST_BYTES = 100; m.make_plans = print; "
        smaller += "from pathlib import Path; sys.exit(m.main(Path(sys.argv[2])))"
        done = subprocess.run([sys.executable, "-c", smaller, self.tree / "tests" / "gpu", build], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("too large: at most 0 MB", done.stderr)
        done = subprocess.run([ROOT / "tests" / "gpu" / "pack", "--architectures", "hopper"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--architectures = 'hopper' is no list", done.stderr)


if __name__ == "__main__":
    MGPLAN, REAL = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    unittest.main(argv=sys.argv[:1], verbosity=int(os.environ.get("V", "1")))
