#!/usr/bin/env python3
"""What tests/gpu/run and take keep of a card: kept_test.py MGPLAN"""

import json
import lzma
import shutil

import faked
import outcomes
import said
from part import Part


class Kept(faked.Scripts):
    def test_output_that_was_cut_off_loses_its_end_alone(self):
        code, text, _ = self.run_script("correctness", "--parts", "fp32,bf16", out="cut")
        self.assertEqual(code, 0, text)
        file = self.folder / "cut" / said.OUTPUT
        whole = file.read_bytes()
        self.assertEqual(len(whole.split(said.MAGIC)), 3, "a stream for each part")
        for kept in (0, 3, 20, len(whole) - 5):
            file.write_bytes(whole[:kept])
            self.assertIn("2 of 2 parts passed", self.take("cut"))
        self.assertEqual(self.kept_output().count("==== fp32, "), 1)
        self.assertEqual(self.kept_output().count("[       OK ] One.Test"), 2)
        # The next command in that folder begins with a file that xz reads.
        file.write_bytes(whole[:-5])
        self.run_script("correctness", "--parts", "fp64", out="cut")
        text = lzma.decompress(file.read_bytes()).decode()
        self.assertEqual([line[:10] for line in text.splitlines() if line.startswith("==== ")], ["==== fp32,", "==== bf16,", "==== fp64,"])
        self.take("cut")

    def test_what_is_taken_twice_is_kept_once(self):
        self.run_script("correctness", "--parts", "fp32,bf16", out="twice")
        for _ in range(2):
            self.take("twice")
        self.assertEqual(self.kept_output().count("[       OK ] One.Test"), 2)
        self.run_script("correctness", "--parts", "fp64", out="twice-more")
        self.take("twice-more")
        self.take("twice")
        self.assertEqual([line.split(",")[0] for line in self.kept_output().splitlines() if line.startswith("====")],
                         ["==== fp32", "==== bf16", "==== fp64"])

    def test_the_newest_counts_in_whatever_order_results_come(self):
        def results(day, status, sources="now", cluster=None, **more):
            part = {"status": status, "sources": sources, "at": day, "data": None, "commit": sources, **more}
            return {"gpu": "a", "bundle": sources, "parts": {"part": part},
                    **({"cluster": cluster, "cluster_of": {"at": day}} if cluster else {})}

        def of_both(*two):
            found = [outcomes.merged(*order) for order in (two, two[::-1])]
            self.assertEqual(found[0], found[1])
            return found[0]
        both = of_both(results("1", "passed", "old", "old cluster"), results("2", "failed", "new", "new cluster"))
        self.assertEqual((both["parts"]["part"]["status"], both["cluster"], both["bundle"]), ("failed", "new cluster", "new"))
        both = of_both(results("1", "passed", "old", "old cluster"), results("2", "failed", "new"))
        self.assertEqual((both["cluster"], both["cluster_of"]), ("old cluster", {"at": "1"}))
        later = results("2", "failed", "new", "one carried along")
        later["cluster_of"] = {"at": "0"}
        self.assertEqual(of_both(results("1", "failed", "old", "calibrated since"), later)["cluster"], "calibrated since")
        # Each part by itself: one command may have gone on where the other had been before.
        later = results("1", "failed", "old")
        later["parts"]["next"] = {"status": "passed", "sources": "old", "at": "3"}
        self.assertEqual(of_both(later, results("2", "passed", "new"))["parts"]["part"]["status"], "passed")
        # Of the same sources a pass stays, but for what judges others; and so does any verdict where the newer is none.
        for older, newer, again, expected in (("passed", "failed", False, "passed"), ("passed", "failed", True, "failed"),
                                              ("failed", "passed", False, "passed"), ("failed", "left out", False, "failed")):
            both = of_both(results("1", older), results("2", newer, again=again))
            self.assertEqual(both["parts"]["part"]["status"], expected, (older, newer, again))

    def test_what_was_measured_outlives_a_command_that_left_it_out(self):
        measured = {"status": "passed", "sources": "old", "commit": "01d", "at": "1", "data": {"milliseconds": 7}}
        both = outcomes.merged({"gpu": "a", "parts": {"layers": measured}},
                               {"gpu": "a", "parts": {"layers": {"status": "left out", "sources": "new", "commit": "4e3", "at": "2", "data": None}}})
        part = both["parts"]["layers"]
        self.assertEqual((part["status"], part["commit"], part["data"]), ("left out", "4e3", {"milliseconds": 7}))
        self.assertEqual(part["measured"], {"sources": "old", "commit": "01d", "at": "1"})
        runner = self.runner(1)
        runner.results["parts"]["layers"] = measured
        for _ in range(2):
            runner.run("layers", Part(60, lambda runner, seconds: self.fail("there is no time")))
            part = runner.results["parts"]["layers"]
            self.assertEqual((part["status"], part["data"], part["measured"]["commit"]), ("left out", {"milliseconds": 7}, "01d"))

    def test_another_clone_finds_what_was_taken_into_the_tree(self):
        self.run_script("correctness", "--parts", "fp32", out="committed")
        self.take("committed")
        shutil.rmtree(self.tree / "build" / "gpu-results")
        code, said, results = self.run_script("correctness", "--parts", "fp32,bf16", out="clone")
        self.assertEqual(code, 0, said)
        self.assertIn("fp32: passed earlier", said)
        file = outcomes.committed(results["gpu"], self.tree)
        self.take("clone")
        self.assertEqual(set(json.loads(file.read_text(encoding="utf-8"))["parts"]), {"fp32", "bf16"})

    def test_bytes_of_a_context_are_told_where_those_of_others_are_known(self):
        for used, expected in (("4", 500_000_000 - (4 << 20)), ("[N/A]", None)):
            self.forget()
            code, text, results = self.run_script("speed", "--parts", "memory_of_context,calibration", out=f"used-{len(used)}", FAKE_USED=used)
            self.assertEqual(code, 0, text)
            # Another day others have taken more: what counts is what they had when the context was measured.
            results["card"]["used_mib"] = "7777"
            (self.folder / f"used-{len(used)}" / "results.json").write_text(json.dumps(results), encoding="utf-8")
            self.take(f"used-{len(used)}")
            file = outcomes.measured_cluster(results["gpu"], self.tree)
            parameters = json.loads(file.read_text(encoding="utf-8"))["calibration"]["parameters"]
            measured = "cudaMemGetInfo" in parameters["driver_bytes"]["source"]
            self.assertEqual((parameters["driver_bytes"]["value"], measured) if expected else measured, (expected, True) if expected else False)
            self.assertEqual(parameters["module_bytes"]["value"], 300_000_000)
            file.unlink()


if __name__ == "__main__":
    faked.main()
