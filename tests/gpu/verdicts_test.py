#!/usr/bin/env python3
"""When a part of tests/gpu/run has passed: verdicts_test.py MGPLAN [GPU_ALL]"""

import fnmatch
import json
import subprocess
import tempfile
from pathlib import Path

import faked
import correctness
import outcomes
import parts as catalogue
import speed


class Verdicts(faked.Scripts):
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

    def test_the_real_program_fails_beside_a_faked_card(self):
        if not faked.REAL:
            self.skipTest("gpu_all was not built")
        self.assertEqual(subprocess.run([faked.REAL, "mgplan", "--version"], capture_output=True).returncode, 0)
        self.assertEqual(subprocess.run([faked.REAL, "nonsense"], capture_output=True).returncode, 2)
        done = subprocess.run([faked.REAL, "test", "--gtest_filter=GpuMemory.*", "--gtest_color=no"], capture_output=True, text=True)
        if done.returncode == 0:
            self.skipTest("there is a GPU here")
        self.assertEqual(done.returncode, 77, done.stdout)
        verdict = correctness.judge_tests(done.returncode, done.stdout, 60)
        self.assertRegex(verdict.why, "^[1-9][0-9]* tests were skipped although there is a GPU: .+")
        none = subprocess.run([faked.REAL, "test", "--gtest_filter=Nothing.*"], capture_output=True, text=True)
        self.assertEqual(none.returncode, 1, "a filter that leaves no test is no success")
        bench = subprocess.run([faked.REAL, "bench", "--card", self.folder / "real-card.json"], capture_output=True, text=True)
        self.assertEqual(bench.returncode, 77)

    def test_every_test_of_the_program_is_in_a_part(self):
        if not faked.REAL:
            self.skipTest("gpu_all was not built")
        listed = subprocess.run([faked.REAL, "test", "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
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

    def test_sanitizers_look_at_our_kernels_alone_where_libraries_would_be_reported(self):
        words = self.folder / "sanitizer.words"

        def options(part, **fakes):
            words.unlink(missing_ok=True)
            self.forget()
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

    def test_slower_layers_than_wanted_beside_pytorch_fail(self):
        parts = {"layers": {"tokens_per_second": 1600.0}, **{f"torch_{kind}": {"layers": {"tokens_per_second": rate}} for kind, rate in
                                                             zip(speed.TORCH, (1000.0, 1200.0, 1450.0, 1400.0))}}

        class Runner:
            results = {"parts": {name: {"data": data} for name, data in parts.items()}}
        verdict = speed.beside_torch(Runner, 10)
        self.assertEqual((verdict.why, verdict.summary), ("", "1.10 times torch_compiled, 1600 and 1450 tokens/s"))
        Runner.results["parts"]["torch_graphs"]["data"]["layers"]["tokens_per_second"] = 1500.0
        self.assertEqual(speed.beside_torch(Runner, 10).why, "1.07 times torch_graphs, 1600 and 1500 tokens/s: less than 1.1 times")
        del Runner.results["parts"]["torch_graphs"]
        Runner.results["parts"]["torch_eager"]["data"] = None
        verdict = speed.beside_torch(Runner, 10)
        self.assertEqual((verdict.why, verdict.summary),
                         ("", "1.10 times torch_compiled, 1600 and 1450 tokens/s (torch_eager, torch_graphs measured nothing)"))
        for kind in ("cudnn", "compiled"):
            del Runner.results["parts"][f"torch_{kind}"]
        self.assertEqual(speed.beside_torch(Runner, 10).why,
                         "torch_eager, torch_cudnn, torch_compiled, torch_graphs measured nothing to compare")
        Runner.results["parts"]["torch_eager"]["data"] = {"layers": {"tokens_per_second": 1000.0}}
        Runner.results["parts"]["layers"]["data"] = None
        self.assertIn("layers, ", speed.beside_torch(Runner, 10).why)

    def test_a_rank_without_a_cluster_file_is_measured_and_not_judged(self):
        part = self.verdict("rank_tiny", "prediction")
        self.assertRegex(part["why"], r"^the time was not judged: there is no cluster file of this card \(the part calibration of the command speed "
                                      r"makes one\); predicted [0-9.]+ ms, measured [0-9.]+ ms, error ")
        self.assertEqual((part["data"]["bytes"]["different"], part["data"]["time"]["judged"]), ([], False))
        self.assertGreater(part["data"]["time"]["measured_seconds"], 0)

    def test_a_cluster_file_of_other_sources_is_named(self):
        self.forget()
        code, said, results = self.run_script("speed", "--parts", "calibration", out="of-others")
        self.assertEqual((code, results["cluster_of"]["sources"]), (0, self.about["sources"]), said)
        file = self.folder / "of-others" / "results.json"
        preset = outcomes.measured_cluster(results["gpu"], self.tree)
        results["cluster_of"].update(sources="others", commit="fedcba9")
        file.write_text(json.dumps(results), encoding="utf-8")

        def said_of_rank(*words, out):
            self.forget()
            code, said, results = self.run_script("prediction", "--parts", "rank_tiny", *words, out=out)
            self.assertEqual(code, 0, said)
            return results["parts"]["rank_tiny"]["why"]
        self.assertRegex(said_of_rank("--earlier", file, out="by-others"),
                         r"error [^;]*; by a cluster file that other sources calibrated \(commit fedcba9, 20..-..-..\)$")
        preset.parent.mkdir(parents=True, exist_ok=True)
        preset.write_text(json.dumps(results["cluster"]), encoding="utf-8")
        try:
            self.assertTrue(said_of_rank(out="by-preset").endswith("; by the tree's h100-80gb-hbm3-measured.json, which other sources may have calibrated"))
        finally:
            preset.unlink()

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


if __name__ == "__main__":
    faked.main()
