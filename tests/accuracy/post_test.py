#!/usr/bin/env python3
"""post.py on records made up so that the answers are known."""

import json
import tempfile
import unittest
from pathlib import Path

import blind
import post


def record(name, job="sft", stack="ms-swift", **more):
    return {"id": name, "job": job, "stack": stack, **more}


def said(seconds=9.0, allocated=40, reserved=50, fits=True):
    return {"seconds": seconds, "interval_seconds": [8, 12], "fits": fits, "allocated_bytes": allocated, "reserved_bytes": reserved}


class Words(unittest.TestCase):
    def test_texts_of_a_record_become_files_of_its_command(self):
        with tempfile.TemporaryDirectory() as folder:
            one = record("one", command=["simulate", "--megatron-args", "{script}", "--model", "{config}"], files={"script": "megatron sft\n", "config": "{}"})
            words = post.words_of(one, Path(folder) / "0.args")
            self.assertEqual([words[0], words[1], words[3]], ["simulate", "--megatron-args", "--model"])
            self.assertEqual([Path(words[2]).read_text(encoding="utf-8"), Path(words[4]).read_text(encoding="utf-8")], ["megatron sft\n", "{}"])


class Tables(unittest.TestCase):
    def test_time_and_memory_count_where_they_are_stated(self):
        records = [record("a", seconds=10.0, counts_time=True, counts_fit=True), record("b", bytes=40, memory_kind="reserved", counts_time=False),
                   record("c", bytes=50, memory_kind="allocated", counts_time=False, counts_fit=True), record("d", seconds=1.0, counts_time=True)]
        errors = post.Errors(records, {"a": said(11.0), "b": said(), "c": said(fits=False), "d": {"refused": True}})
        self.assertEqual([round(each, 6) for each in errors.time], [0.1])
        self.assertEqual([round(each, 6) for each in errors.memory], [0.25, -0.2])
        self.assertEqual((errors.inside, errors.fits, errors.refused), ([True], [True, False], 1))

    def test_a_step_of_rl_has_no_interval(self):
        figures = post.figures_of({"step_seconds": 12.0, "fits": True})
        self.assertEqual(figures, {"seconds": 12.0, "fits": True, "sync_seconds": None, "cache_bytes": None})
        records = [record("a", job="grpo", seconds=10.0, counts_time=True, counts_fit=True), record("b", job="grpo", seconds=10.0, counts_time=True, counts_fit=True)]
        errors = post.Errors(records, {"a": figures, "b": post.figures_of({"step_seconds": None, "fits": False})})
        self.assertEqual([round(each, 6) for each in errors.time], [0.2])
        self.assertEqual((errors.inside, errors.fits), ([], [True, False]))

    def test_cache_and_weight_sync_of_rl_count_by_themselves(self):
        figures = post.figures_of({"step_seconds": 12.0, "fits": True, "weight_sync_seconds": 3.0, "kv_bytes": 33})
        none = post.figures_of({"step_seconds": None, "fits": False, "weight_sync_seconds": 0, "kv_bytes": 0})
        sync, cache = {"seconds": 4.0, "time_kind": "sync_", "counts_time": True}, {"bytes": 30, "memory_kind": "cache", "counts_fit": True}
        errors = post.Errors([record("a", job="sync", **sync), record("b", job="sync", **sync), record("c", job="kv", **cache), record("d", job="kv", **cache)],
                             {"a": figures, "b": none, "c": figures, "d": none})
        self.assertEqual(([round(each, 6) for each in errors.time], [round(each, 6) for each in errors.memory]), ([-0.25], [0.1]))
        self.assertEqual(errors.fits, [True, False])

    def test_jobs_come_before_their_stacks(self):
        records = [record("a", seconds=10.0, counts_time=True), record("b", stack="prime-rl", seconds=10.0, counts_time=True), record("c", job="lora")]
        lines = post.table(records, {"a": said(9.0), "b": said(12.0), "c": said()})
        self.assertEqual([line.split(" | ")[0] for line in lines[2:]], ["| **lora**", "| lora, ms-swift", "| **sft**", "| sft, ms-swift", "| sft, prime-rl"])
        self.assertIn("| 2 | 15.0 | +5.0 |", lines[4])

    def test_rows_left_out_are_counted_by_reason(self):
        lines = post.left_out_table([{"rows": 2, "reason": "x"}, {"rows": 3, "reason": "y"}, {"rows": 2, "reason": "x"}])
        self.assertEqual(lines[2:], ["| x | 4 |", "| y | 3 |", "| **all** | 7 |"])

    def test_a_limit_is_of_one_job(self):
        records = [record("a", seconds=10.0, counts_time=True), record("b", job="lora", seconds=10.0, counts_time=True)]
        today = {"a": said(9.0), "b": said(5.0)}
        self.assertFalse(post.beyond(records, today, ["sft=10.5"], "time"))
        self.assertTrue(post.beyond(records, today, ["sft=10.5", "lora=40"], "time"))
        self.assertTrue(post.beyond(records, today, ["sft=50"], "memory"), "nothing to judge")


class Records(unittest.TestCase):
    def test_every_record_names_what_it_counts(self):
        for one in blind.Records(post.FOLDER).records:
            self.assertIn(one["job"], ("sft", "lora", "qlora", "grpo", "kv", "sync"))
            self.assertEqual("seconds" in one, bool(one.get("counts_time")), one["id"])
            self.assertEqual("bytes" in one, "memory_kind" in one, one["id"])
            self.assertTrue(one.get("counts_time") or "bytes" in one, one["id"])
            self.assertTrue(json.dumps(one["command"]).count("{") == len(one.get("files", {})), one["id"])


if __name__ == "__main__":
    unittest.main()
