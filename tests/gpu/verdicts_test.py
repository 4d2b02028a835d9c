#!/usr/bin/env python3
"""When a part of tests/gpu/run has passed: verdicts_test.py MGPLAN [GPU_ALL]"""

import fnmatch
import json
import re
import subprocess
import tempfile
import types
from pathlib import Path

import faked
import correctness
import libraries
import outcomes
import parts as catalogue
import prediction
import speed
from fake_card import LAYERS, VERSIONS


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
        self.assertIn("racecheck found 3 errors", self.verdict("racecheck", FAKE_TESTS="hazard")["why"])
        self.assertEqual(self.verdict("nccl", FAKE_TESTS="mute")["why"], "it checked nothing")
        self.assertEqual(self.verdict("calibration", "speed", FAKE_CALIBRATE="cut", FAKE_CALIBRATE_ENDS="0")["why"],
                         "the cluster file is not complete")
        runner = self.runner(10)
        runner.environment["PATH"] = str(self.folder / "nowhere")
        self.assertIn("compute-sanitizer was not found", catalogue.correctness(self.build)["memcheck"].work(runner, 10).why)

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

    def test_processes_over_nccl_may_say_what_they_waited_for(self):
        source = (faked.HERE / "nccl_check.cpp").read_text(encoding="utf-8")
        stuck, heard = map(int, re.search(r"kUntilStuck\{(\d+)\}, kUntilHeard\{(\d+)\}", source).groups())
        parts = catalogue.correctness(self.build)
        self.assertLess(stuck + 10, parts["nccl"].seconds)
        self.assertLess(2 * heard + 10, parts["nccl_leave"].seconds)

    def test_fp8_is_left_out_on_cards_without_it_and_refused_by_name(self):
        self.write_bundle(architectures=["80"])
        try:
            blocks = ("fp8_blocks", "fp8_blocks", "9.0, or 10.0 to 11.9")
            for compute, (left_out, asked, needs) in (("8.0", ("fp8, fp8_blocks", "fp8", "8.9 or later")), ("8.9", blocks), ("12.0", blocks),
                                                      ("10.3", ("", "", ""))):
                self.forget()
                code, said, results = self.run_script("correctness", out=compute, FAKE_COMPUTE=compute)
                self.assertEqual(code, 0, said)  # the faked program skips what such a card has not
                self.assertEqual(f"not for compute capability {compute}: {left_out}\n" in said, bool(left_out), said)
                self.assertFalse(set(results["parts"]) & set(left_out.split(", ")))
                if asked:
                    code, said, _ = self.run_script("correctness", "--parts", f"fp32,{asked}", out=compute, FAKE_COMPUTE=compute)
                    self.assertEqual(code, 2, said)
                    self.assertIn(f"has compute capability {compute}, and {asked} needs {needs}; leave it out of --parts", said)
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
        def part(rate):
            return {"status": "passed", "sources": "now", "data": {"layers": {"tokens_per_second": rate}}}
        runner = types.SimpleNamespace(results={"bundle": {"sources": "now"}, "parts": {}})
        parts = runner.results["parts"]
        parts["layers"] = {**part(0), "data": {"tokens_per_second": 1600.0}}
        parts.update({f"torch_{kind}": part(rate) for kind, rate in zip(speed.TORCH, (1000.0, 1200.0, 1300.0, 1450.0, 1400.0))})
        verdict = speed.beside_torch(runner, 10)
        self.assertEqual((verdict.why, verdict.summary), ("", "1.10 times torch_compiled_cudnn, 1600 and 1450 tokens/s"))
        parts["torch_graphs"] = part(1500.0)
        self.assertEqual(speed.beside_torch(runner, 10).why, "1.07 times torch_graphs, 1600 and 1500 tokens/s: less than 1.1 times")
        parts["torch_graphs"] = part(1000.0)
        # Of an earlier day, with other sources of ours: PyTorch's still count, ours do not.
        parts["torch_eager"].update(status="left out", sources="old")
        self.assertEqual(speed.beside_torch(runner, 10).why, "")
        for name, changes in (("layers", {"sources": "old"}), ("layers", {"status": "left out"}), ("layers", {"status": "failed"}),
                              ("torch_compiled", {"status": "failed"}), ("torch_compiled_cudnn", {"data": None}), ("torch_graphs", None)):
            kept = parts.pop(name)
            parts.update({name: {**kept, **changes}} if changes else {})
            self.assertEqual(speed.beside_torch(runner, 10).why, f"no verdict: {name} measured nothing", changes)
            parts[name] = kept
        self.assertEqual(speed.beside_torch(runner, 10).why, "")

    def test_losses_that_are_no_numbers_are_no_same_bits(self):
        def report(*losses, as_predicted=True):
            return {"as_predicted": as_predicted, "steps": [{"loss": loss, "grad_norm": 1.0} for loss in losses]}
        good = report(3.0, 2.0, 1.0)
        self.assertEqual(correctness.judge_bits(good, good).why, "")
        for bad in (report(3.0, None, None), report(3.0, 2.0), report(), report(3.0, 2.0, float("nan"))):
            self.assertIn("3 steps with finite losses and gradient norms were asked for, and the threads made [",
                          correctness.judge_bits(bad, bad).why)
            self.assertIn("and the processes made [", correctness.judge_bits(good, bad).why)
        self.assertIn("losses and gradient norms differ: [(3.0, 1.0)", correctness.judge_bits(good, report(3.0, 2.0, 1.5)).why)
        for pair in ((good, report(3.0, 2.0, 1.0, as_predicted=False)), (report(3.0, 2.0, 1.0, as_predicted=False), good)):
            self.assertEqual(correctness.judge_bits(*pair).why, "bytes or traffic are not as predicted")

    def test_layers_pass_with_the_loss_of_drawn_weights_and_the_predicted_bytes_alone(self):
        good = {"first_loss": 11.2, "last_loss": 11.3, "expected_first_loss": 11.19, "bytes": {"parameters": {"predicted": 5, "measured": 5}}}
        self.assertEqual(speed.wrong_layers(good), "")
        for changes, why in (({"first_loss": None}, "losses are no numbers: the first None, the last 11.3"),
                             ({"last_loss": None}, "losses are no numbers: the first 11.2, the last None"),
                             ({"last_loss": float("inf")}, "losses are no numbers"),
                             ({"first_loss": 10.37}, "the first loss is 10.3700, and drawn weights have 11.1900 (to 0.25)"),
                             ({"last_loss": 12.5}, "the loss rose from 11.2000 to 12.5000"),
                             ({"bytes": {"parameters": {"predicted": 5, "measured": 6}}}, "bytes are not as predicted: parameters")):
            self.assertIn(why, speed.wrong_layers({**good, **changes}))
        part = self.verdict_with("layers", {"layers": {**LAYERS, "last_loss": None}}, "layers", command="speed")
        self.assertIn("losses are no numbers", part["why"])

    def test_a_rank_without_a_cluster_file_is_measured_and_not_judged(self):
        part = self.verdict("rank_tiny", "prediction")
        self.assertRegex(part["why"], r"^the time was not judged: there is no cluster file of this card \(the part calibration of the command speed "
                                      r"makes one\); predicted [0-9.]+ ms, measured [0-9.]+ ms, error ")
        self.assertEqual((part["data"]["bytes"]["different"], part["data"]["time"]["judged"]), ([], False))
        self.assertGreater(part["data"]["time"]["measured_seconds"], 0)

    def test_bytes_that_differ_and_a_time_that_is_not_judged_fail_a_rank(self):
        def why(code=0, as_predicted=True, **time):
            data = {"as_predicted": as_predicted, "time": {"predicted_seconds": 1.0, "measured_seconds": 1.25, "error": -0.2, "judged": True, **time}}
            return prediction.judge_rank(code, "said", 10, data, "; a note").why
        summary = "predicted 1000.00 ms, measured 1250.00 ms, error -20.0 %; a note"
        self.assertEqual(why(), "")
        self.assertEqual(why(as_predicted=False), f"bytes or traffic are not as predicted; {summary}")
        self.assertEqual(why(judged=False, why_not_judged="it shared a GPU"), f"the time was not judged: it shared a GPU; {summary}")
        self.assertEqual(why(prediction.MISSED), summary)
        self.assertEqual(why(4), "exit code 4: said")

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
            self.assertRegex(said_of_rank(out="by-preset"),
                             "; by the tree's h100-80gb-hbm3-measured.json, which other sources may have calibrated$")
        finally:
            preset.unlink()

    def test_a_missed_prediction_fails(self):
        self.run_script("speed", "--parts", "calibration", out="calibrated")
        code, said, _ = self.run_script("prediction", "--parts", "rank_tiny", "--earlier", self.folder / "calibrated" / "results.json",
                                        out="missed", FAKE_TOLERANCE="0")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"rank_tiny: FAILED in \d+ s: predicted [0-9.]+ ms, measured [0-9.]+ ms, error [+-]")

    def test_nothing_passes_with_libraries_of_another_major_version(self):
        loaded, built = dict(VERSIONS), self.about["libraries"]
        self.assertEqual(libraries.unfit(loaded, built, "/lib"), "")
        self.assertEqual(libraries.unfit({**loaded, "cudnn": "9.1.0"}, built, "/lib"), "")
        for changes, to, why in (({"cudnn": ""}, {}, "cudnn was not loaded; libraries are looked for in /lib"),
                                 ({"nccl": None}, {}, "nccl was not loaded"), ({"cudnn": "8.9.7"}, {}, "cudnn is version 8.9.7 here, and the bundle"),
                                 ({"cuda": "12.4"}, {}, "cuda is version 12.4 here"), ({}, {"nccl": ""}, "does not say for which nccl it was built")):
            self.assertIn(why, libraries.unfit({**loaded, **changes}, {**built, **to}, "/lib"))
        self.assertIn("cudnn was not loaded", self.verdict_with("card", {**loaded, "cudnn": ""}, "card")["why"])
        # Each call looks: card passed on another machine, or is no part of it.
        code, said, _ = self.run_script("correctness", "--parts", "card,bf16", out="fit")
        self.assertEqual(code, 0, said)
        for name in ("fp32", "card"):
            part = self.verdict_with("versions", {**loaded, "cudnn": "8.9.7"}, name)
            self.assertEqual((part["status"], part["why"]), ("failed", "no pass on this machine: cudnn is version 8.9.7 here, and the bundle was "
                                                             "built for 9.19.0: another major version"))
            self.assertEqual(self.verdict_with("versions", loaded, name, FAKE_TESTS="loader")["status"], "failed")
        code, said, _ = self.run_script("correctness", "--parts", "card,bf16", out="fit")
        self.assertEqual((code, "passed earlier" in said), (0, True), said)

    def verdict_with(self, what, values, part, command="correctness", **fakes):
        """With what the faked program measures in the meantime."""
        file = self.folder / f"{what}.json"
        kept = file.read_text(encoding="utf-8")
        try:
            file.write_text(json.dumps(values), encoding="utf-8")
            return self.verdict(part, command, **fakes)
        finally:
            file.write_text(kept, encoding="utf-8")



if __name__ == "__main__":
    faked.main()
