#!/usr/bin/env python3
"""tests/gpu/run and take with a faked card: scripts_test.py MGPLAN [GPU_ALL]"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

import faked
import bundle as bundles
import outcomes
import own
import parts as catalogue
from part import Part, Verdict


class RunAndTake(faked.Scripts):
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
                      "| rank_tiny |", "| rank_tiny | GEMMs |", "| whole | full_iteration |", "four groups, of both ranks | + 1,000"):
            self.assertIn(words, page)
        cluster = self.tree / "configs" / "clusters" / "h100-80gb-hbm3-measured.json"
        values = json.loads(cluster.read_text(encoding="utf-8"))["calibration"]["parameters"]
        self.assertEqual(values["driver_bytes"]["value"], 500_000_000 - (4 << 20))
        self.assertEqual(values["module_bytes"]["value"], 300_000_000)
        shown = subprocess.run([faked.MGPLAN, "--world", "2", "--model", "tiny-llama", "--precision", "fp32", "--cluster", cluster],
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

    def test_what_had_no_time_fails_and_is_run_by_the_next_call(self):
        code, said, results = self.run_script("correctness", "--parts", "memory,bf16", "--seconds", "11", out="short", FAKE_TESTS="hang")
        self.assertEqual(code, 1, said)
        self.assertEqual([results["parts"][name]["status"] for name in ("memory", "bf16")], ["failed", "left out"])
        self.assertIn("not done within 11 s", results["parts"]["memory"]["why"])
        self.assertIn("FAILED: memory (failed), bf16 (left out)", said)
        code, said, results = self.run_script("correctness", "--parts", "memory,bf16", out="short")
        self.assertEqual(code, 0, said)
        self.assertLess(said.index("bf16: passed"), said.index("memory: passed"), "what failed comes behind what nothing is known of")

    def test_a_part_is_not_begun_with_too_little_time_and_ends_by_its_share(self):
        given = []

        def work(runner, seconds):
            given.append(seconds)
            return Verdict()
        self.assertEqual(Part(60, work).least, 20)
        runner = self.runner(44)
        runner.run("short", Part(90, work, least=45))
        short = runner.results["parts"]["short"]
        self.assertEqual((short["status"], given), ("left out", []))
        self.assertRegex(short["why"], "^4[34] s were left of 44, and it is not begun with less than 45; call again$")
        # What failed before keeps its verdict, on these sources.
        failed = {"status": "failed", "why": "bf16 differs", "sources": self.about["sources"]}
        runner.results["parts"] = {"ours": dict(failed), "others": {**failed, "sources": "of another tree"}}
        for name in ("ours", "others"):
            runner.run(name, Part(90, work, least=45))
        self.assertEqual([(part["status"], part["why"] == "bf16 differs") for part in runner.results["parts"].values()],
                         [("failed", True), ("left out", False)])
        runner = self.runner(100)
        runner.run("cut", Part(90, work, until=0.45))
        runner.run("later", Part(90, work))
        self.assertTrue(44 < given[0] <= 45 and given[1] == 90, given)
        runner.run("early", Part(90, work, until=0.25))
        self.assertEqual(runner.results["parts"]["early"]["status"], "left out")
        # Sanitizers and PyTorch are slow to begin; calibration goes on where it was; what only judges needs no time.
        least = {name: part.least for name, part in {**catalogue.correctness(self.build), **catalogue.speed(self.build)}.items()}
        self.assertEqual([least[name] for name in ("fp32", "memcheck", "torch_eager", "torch_graphs", "calibration", "beside_torch")],
                         [20, 45, 30, 60, 20, 0])

    def test_a_borrowed_card_gets_what_tells_most_first(self):
        parts = catalogue.borrowed(self.build)
        order = list(parts)
        self.assertEqual(set(parts), {name for command in ("correctness", "speed", "prediction") for name in catalogue.COMMANDS[command](self.build)})
        groups = ["card", "run", "calibration", "rank_tiny", "layers", "torch_graphs", "products", "graphs_whole_none", "fp64"]
        self.assertEqual(sorted(groups, key=order.index), groups)
        self.assertEqual(order[-4:], ["memcheck", "racecheck", "initcheck", "memcheck_bf16"], "the slowest, and of the least news")
        until = [parts[name].until for name in order]
        self.assertEqual(until, sorted(until))
        self.assertLess(parts["run"].until, parts["calibration"].until)
        self.assertLess(parts["calibration"].until, parts["rank_tiny"].until)
        self.assertLess(parts["rank_tiny"].until, parts["layers"].until)
        # Asked again, what failed comes last and may use all that is left.
        failed = {"status": "failed", "sources": "now"}
        again = catalogue.in_order(parts, {"bundle": {"sources": "now"}, "parts": {"card": failed, "calibration": failed}})
        self.assertEqual(list(again)[-2:], ["card", "beside_torch"])
        self.assertEqual((again["card"].until, again["calibration"].until), (1.0, parts["calibration"].until))

    def test_a_second_call_goes_on_without_what_the_first_brought_back(self):
        code, said, results = self.run_script("borrowed", "--parts", "card,fp32,rank_tiny", out="call1", FAKE_TESTS="fail")
        self.assertEqual((code, results["parts"]["card"]["status"], results["parts"]["fp32"]["status"]), (1, "passed", "failed"), said)
        code, said, results = self.run_script("borrowed", out="call2")
        self.assertEqual(code, 0, said)
        self.assertIn("card: passed earlier", said)
        self.assertLess(said.index("bf16: passed"), said.index("fp32: passed"))
        self.assertEqual(list(results["parts"])[-1], "beside_torch")
        self.take("call2")  # holds what the first measured, too

    def test_what_had_no_time_in_its_turn_is_tried_behind_the_others(self):
        order = []

        def work(name, seconds=0):
            def run(runner, left):
                order.append(name)
                time.sleep(seconds)
                return Verdict()
            return run
        runner = self.runner(10)
        runner.run_all({"slow": Part(9, work("slow", 1.5), until=0.3, least=0), "late": Part(9, work("late"), until=0.3, least=2),
                        "judge": Part(9, work("judge"), again=True), "next": Part(9, work("next"), until=0.6, least=2),
                        "never": Part(90, work("never"), until=0.3, least=30)})
        self.assertEqual(order, ["slow", "next", "late", "judge"])
        self.assertEqual(runner.results["parts"]["never"]["status"], "left out")
        # What judges takes no time: it is asked when none is left, too.
        order.clear()
        self.runner(-1).run_all({"judge": Part(10, work("judge"), least=0, again=True), "other": Part(10, work("other"))})
        self.assertEqual(order, ["judge"])

    def test_what_failed_comes_behind_what_is_new_and_judges_come_last(self):
        results = {"bundle": {"sources": "now"}, "parts": {"card": {"status": "failed", "sources": "now"}, "products": {"status": "failed",
                   "sources": "before"}, "calibration": {"status": "failed", "sources": "now"}}}
        parts = catalogue.speed(self.build)
        expected = [name for name in parts if name not in ("card", "beside_torch")] + ["card", "beside_torch"]
        self.assertEqual(list(catalogue.in_order(parts, results)), expected)

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

        def calibrate(out, code, calls, take=True, **fakes):
            words.unlink(missing_ok=True)
            got, said, results = self.run_script("speed", "--parts", "calibration", out=out, **fakes)
            self.assertEqual(got, code, said)
            self.assertEqual(["--resume" in line for line in words.read_text(encoding="utf-8").splitlines()], calls)
            if take:
                self.take(out)
            return results
        results = calibrate("cut1", 1, [False], take=False, FAKE_CALIBRATE="cut")
        self.assertEqual(results["parts"]["calibration"]["status"], "failed")
        self.assertTrue((kept / name).exists())
        (kept / "cluster-other.json.part").write_text("of other sources", encoding="utf-8")
        calibrate("cut2", 1, [True], FAKE_CALIBRATE="cut")  # $OUT is another, empty folder
        self.assertEqual([path.name for path in kept.glob("*.part")], [name])
        results = calibrate("cut3", 0, [True])
        self.assertTrue(results["cluster"]["calibration"]["complete"])
        self.assertEqual(list(kept.glob("*.part")) + list((self.folder / "cut3").glob("*.part")), [])
        # What cannot be gone on with is begun anew.
        self.forget()
        kept.mkdir(parents=True)
        (kept / name).write_text("{}", encoding="utf-8")
        calibrate("anew", 0, [True, False])

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


if __name__ == "__main__":
    faked.main()
